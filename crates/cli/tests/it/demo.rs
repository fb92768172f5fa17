//! `trefoil demo`, the first thing that a newcomer runs.

use std::process::Stdio;

use testkit::{TempProject, WAIT, finish};

#[test]
fn the_demo_repairs_its_repository() {
    let project = TempProject::without_git();
    let demo = || {
        let mut command = project.command(env!("CARGO_BIN_EXE_trefoil"));
        command.args(["demo", "sample"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish("the demo", command.spawn().unwrap(), WAIT)
    };
    let output = demo();
    let (told, shown) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{shown}");
    assert!(told.contains("offline demo") && told.contains("PASS"), "{told}");
    assert!(
        shown.contains("read  greeter.sh") && shown.contains("edit  greeter.sh") && shown.contains("bash"),
        "{shown}"
    );
    assert!(project.read("sample/greeter.sh").contains("Hello, "));
    assert_eq!(project.command("sh").args(["sample/test.sh"]).status().unwrap().code(), Some(0));
    let again = demo();
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("does not exist yet"));
}
