//! The first thing that a newcomer runs.

use testkit::TempProject;

#[test]
fn the_demo_repairs_its_repository() {
    let project = TempProject::without_git();
    let output = project.command(env!("CARGO_BIN_EXE_trefoil")).args(["demo", "sample"]).output().unwrap();
    let (told, shown) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{shown}");
    assert!(told.contains("offline demo") && told.contains("PASS"), "{told}");
    assert!(
        shown.contains("read  greeter.sh") && shown.contains("edit  greeter.sh") && shown.contains("bash"),
        "{shown}"
    );
    assert!(project.read("sample/greeter.sh").contains("Hello, "));
    assert_eq!(project.command("sh").args(["sample/test.sh"]).status().unwrap().code(), Some(0));
    let again = project.command(env!("CARGO_BIN_EXE_trefoil")).args(["demo", "sample"]).output().unwrap();
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("does not exist yet"));
}
