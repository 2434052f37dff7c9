//! What every system under test does once it runs.

use std::io;

use crate::estimates::Watch;
use crate::scenario::Traffic;
use crate::testbed::Testbed;
use crate::traffic::Endpoint;

/// A system that runs.
pub(crate) trait Running {
    /// The addresses and wrapper of a flow of the system.
    fn endpoint(&self, testbed: &Testbed, traffic: &Traffic) -> io::Result<Endpoint>;

    /// Tells that an interface went up or down.
    fn interface_changed(&mut self, _testbed: &Testbed, _port: usize, _up: bool) -> io::Result<()> {
        Ok(())
    }

    /// Begins to watch what the sending end estimates of its paths; `None` if it tells nothing.
    fn watch(&self, _testbed: &Testbed) -> Option<Watch> {
        None
    }

    /// The state that the system reports at the end of a run.
    fn status(&mut self, _testbed: &Testbed) -> serde_json::Value {
        serde_json::Value::Null
    }
}
