//! `[host_mode]`: the routing tables, the rules' priority and the mark that host mode uses.

use std::ops::RangeInclusive;

use super::problems::Problems;
use super::raw;
use super::settings::HostMode;
use super::values::integer;

/// Values of `table` that do not leave the kernel's tables `default`, `main` and `local` alone:
/// they are 253 to 255 (rtnetlink(7)), and host mode uses three tables in a row.
const RESERVED_TABLES: RangeInclusive<u32> = 251..=255;

/// Resolves the section. A value that is wrong is left at its default.
pub(super) fn resolve(raw: &raw::HostMode, problems: &mut Problems<'_>) -> HostMode {
    let mut settings = HostMode::default();
    if let Some(table) = &raw.table {
        let range = 1..=i64::from(u32::MAX) - 2;
        settings.table = integer(table, "table", range, problems).unwrap_or(settings.table);
        if RESERVED_TABLES.contains(&settings.table) {
            let message = format!(
                "table: expected a number outside of 251 to 255, because neither this table nor the \
                 two after it may be one of the kernel's (253 to 255), found {}",
                settings.table
            );
            problems.add(&table.span(), message);
        }
    }
    if let Some(priority) = &raw.priority {
        let range = 1..=32_765;
        settings.priority =
            integer(priority, "priority", range, problems).unwrap_or(settings.priority);
    }
    if let Some(mark) = &raw.mark {
        settings.mark =
            integer(mark, "mark", 1..=u32::MAX.into(), problems).unwrap_or(settings.mark);
        if !settings.mark.is_power_of_two() {
            let message = format!(
                "mark: expected a number with one bit like 0x10000000, found {:#x}",
                settings.mark
            );
            problems.add(&mark.span(), message);
        }
    }
    settings.loosen_rp_filter = raw.loosen_rp_filter.unwrap_or(settings.loosen_rp_filter);
    settings
}
