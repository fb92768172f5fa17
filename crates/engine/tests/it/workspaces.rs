//! Linked worktrees that users make, and workspaces: what fails leaves nothing behind.

use api::{CreateWorkspace, EventBody, HostError, Workspace, WorktreeRemoval};

use crate::common::Lab;
use testkit::soon;

/// The branches that were created with worktrees, and the number of linked worktrees.
fn state(lab: &Lab) -> (Vec<String>, usize) {
    let branches = lab.project.git(&["branch", "--format=%(refname:short)", "--list", "opencode/*", "feature/*"]);
    let branches = branches.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    (branches, lab.project.git(&["worktree", "list"]).lines().count() - 1)
}

fn workspace(id: &str, branch: Option<&str>) -> CreateWorkspace {
    let (id, kind, branch) = (Some(id.to_owned()), Workspace::WORKTREE.to_owned(), branch.map(str::to_owned));
    CreateWorkspace { id, kind, branch, extra: None }
}

#[tokio::test]
async fn of_two_workspaces_with_one_id_only_one_has_a_worktree() {
    let lab = Lab::new();
    let mut recorder = lab.recorder().await;
    // Both look for the id before either is recorded: the first thing that each waits for is git.
    let (first, second) = soon("both workspaces", async {
        tokio::join!(
            lab.engine.create_workspace(&lab.scope, workspace("wrk_one", None)),
            lab.engine.create_workspace(&lab.scope, workspace("wrk_one", None)),
        )
    })
    .await;
    let (made, refused) = match (first, second) {
        (Ok(made), Err(refused)) | (Err(refused), Ok(made)) => (made, refused),
        both => panic!("{both:#?}"),
    };
    assert!(matches!(&refused, HostError::Conflict(why) if why.contains("wrk_one")), "{refused}");
    recorder.wait_for(|event| matches!(event, EventBody::WorktreeReady { .. })).await;
    assert_eq!(lab.engine.workspaces(&lab.scope).await.unwrap(), std::slice::from_ref(&made));
    assert_eq!(state(&lab), (vec![made.branch.unwrap()], 1));
}

#[tokio::test]
async fn a_refused_workspace_keeps_a_branch_that_it_did_not_create() {
    let lab = Lab::new();
    lab.project.git(&["branch", "feature/x"]);
    let folder = lab.project.home().join(".local/share/trefoil/worktree");
    std::fs::write(&folder, "a file where the folder of worktrees belongs").unwrap();
    for branch in [Some("feature/x"), Some("feature/y"), None] {
        let refused = lab.engine.create_workspace(&lab.scope, workspace("wrk_one", branch)).await.unwrap_err();
        assert!(matches!(refused, HostError::Conflict(_)), "{refused:?}");
        assert_eq!(state(&lab), (vec!["feature/x".to_owned()], 0), "{branch:?}");
    }
    assert_eq!(lab.engine.workspaces(&lab.scope).await.unwrap(), []);
    // Nothing stands in the way of another attempt.
    std::fs::remove_file(&folder).unwrap();
    let made = lab.engine.create_workspace(&lab.scope, workspace("wrk_one", Some("feature/y"))).await.unwrap();
    assert_eq!(state(&lab), (vec!["feature/x".to_owned(), "feature/y".to_owned()], 1));
    assert_eq!(lab.engine.remove_workspace("wrk_one").await.unwrap(), made);
    assert_eq!(state(&lab).1, 0);
}

#[tokio::test]
async fn a_worktree_with_changes_is_removed_only_by_force() {
    let lab = Lab::new();
    let mut recorder = lab.recorder().await;
    let tree = lab.engine.create_linked_worktree(&lab.scope, Some("one"), None).await.unwrap();
    recorder.wait_for(|event| matches!(event, EventBody::WorktreeReady { .. })).await;
    std::fs::write(format!("{}/new.txt", tree.directory), "new").unwrap();
    let remove = async |force| lab.engine.remove_linked_worktree(&lab.scope, &tree.directory, force).await.unwrap();
    let kept = remove(false).await;
    assert!(matches!(kept, WorktreeRemoval::HasChanges(_)), "{kept:?}");
    assert_eq!(state(&lab), (vec!["opencode/one".to_owned()], 1));
    assert_eq!(remove(true).await, WorktreeRemoval::Removed(tree.directory.clone()));
    assert_eq!(state(&lab), (Vec::new(), 0));
}
