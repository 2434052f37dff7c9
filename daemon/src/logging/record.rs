//! Records of the log, and the fields of events in them.

use log::kv::{Error, Key, Source, ToValue, Value, VisitSource};
use log::{Level, Record};
use mpip_api::EventKind;

/// The field that names the kind of an event.
const EVENT: &str = "event";

/// Fields by name.
struct Fields(Vec<(String, Field)>);

enum Field {
    Text(String),
    Number(f64),
    Whole(u64),
    Flag(bool),
}

impl Source for Fields {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), Error> {
        for (name, field) in &self.0 {
            let value = match field {
                Field::Text(text) => text.to_value(),
                Field::Number(number) => number.to_value(),
                Field::Whole(number) => number.to_value(),
                Field::Flag(flag) => flag.to_value(),
            };
            visitor.visit_pair(Key::from_str(name), value)?;
        }
        Ok(())
    }
}

/// The fields of an event, with the names that they have on the control socket.
fn fields(kind: &EventKind) -> Fields {
    let Ok(serde_json::Value::Object(object)) = serde_json::to_value(kind) else {
        return Fields(Vec::new());
    };
    let field = |value: serde_json::Value| match value {
        serde_json::Value::Null => None,
        serde_json::Value::Bool(flag) => Some(Field::Flag(flag)),
        serde_json::Value::String(text) => Some(Field::Text(text)),
        serde_json::Value::Number(number) => {
            number.as_u64().map(Field::Whole).or(number.as_f64().map(Field::Number))
        }
        serde_json::Value::Array(list) => {
            let texts =
                list.iter().map(|item| item.as_str().map_or(item.to_string(), str::to_owned));
            Some(Field::Text(texts.collect::<Vec<_>>().join(", ")))
        }
        other => Some(Field::Text(other.to_string())),
    };
    let fields = object.into_iter().filter_map(|(name, value)| Some((name, field(value)?)));
    Fields(fields.collect())
}

/// Writes an event to the log.
pub(crate) fn event(level: Level, message: &str, kind: &EventKind) {
    if level > log::max_level() {
        return;
    }
    let fields = fields(kind);
    let target = module_path!();
    let arguments = format_args!("{message}");
    let mut record = Record::builder();
    let record = record.level(level).target(target).module_path(Some(target)).key_values(&fields);
    log::logger().log(&record.args(arguments).build());
}

/// Whether a record is an event.
pub(super) fn is_event(record: &Record<'_>) -> bool {
    record.key_values().get(Key::from_str(EVENT)).is_some()
}

/// Calls `each` with every field.
pub(super) fn visit(record: &Record<'_>, each: impl FnMut(&str, &Value<'_>)) {
    struct Visitor<F>(F);
    impl<'kvs, F: FnMut(&str, &Value<'_>)> VisitSource<'kvs> for Visitor<F> {
        fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
            (self.0)(key.as_str(), &value);
            Ok(())
        }
    }
    // The visitor does not fail.
    let _ = record.key_values().visit(&mut Visitor(each));
}

/// A record as a JSON object.
pub(super) fn json(time: &str, message: &str, record: &Record<'_>) -> String {
    // By hand, so that time, level and message come first.
    let mut object = String::from("{");
    let mut add = |name: &str, value: serde_json::Value| {
        let separator = if object.len() > 1 { "," } else { "" };
        object += &format!("{separator}{}:{value}", serde_json::Value::from(name));
    };
    let level = record.level().as_str().to_ascii_lowercase();
    for (name, text) in [("time", time), ("level", &level), ("message", message)] {
        add(name, text.into());
    }
    visit(record, |name, value| {
        let value = if let Some(flag) = value.to_bool() {
            flag.into()
        } else if let Some(number) = value.to_u64() {
            number.into()
        } else if let Some(number) = value.to_f64() {
            number.into()
        } else {
            value.to_string().into()
        };
        add(name, value);
    });
    object + "}"
}
