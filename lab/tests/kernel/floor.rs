//! The floor carries packets between two namespaces.

use std::process::Command;

use mpip_testing::{alone, can_run};

use crate::LAB;

#[test]
fn a_ping_crosses_the_floor_with_and_without_seals() {
    let _alone = alone();
    if !can_run(&["ping"]) {
        return;
    }
    for system in ["floor", "floor sealed"] {
        let output = Command::new(LAB)
            .args(["shell", "floor", "--system", system])
            .args(["--exec", "ping -c 3 -i 0.2 -s 1000 10.78.0.2"])
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(" 0% packet loss"), "{said}{error}");
    }
}
