//! Linked worktrees that users make, and workspaces: what fails leaves nothing behind.

use api::{
    Caller, CallerCapabilities, CreateLinkedWorktree, CreateSession, CreateWorkspace, EventBody, Host as _, HostError,
    Scope, Workspace, WorkspaceHost as _, WorktreeRemoval,
};

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

fn named(name: &str) -> CreateLinkedWorktree {
    CreateLinkedWorktree { name: Some(name.to_owned()), start_command: None }
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
    assert_eq!(lab.engine.remove_workspace(&lab.scope, "wrk_one").await.unwrap(), made);
    assert_eq!(state(&lab).1, 0);
}

#[tokio::test]
async fn a_worktree_with_changes_is_removed_only_by_force() {
    let lab = Lab::new();
    let mut recorder = lab.recorder().await;
    let tree = lab.engine.create_linked_worktree(&lab.scope, named("one")).await.unwrap();
    recorder.wait_for(|event| matches!(event, EventBody::WorktreeReady { .. })).await;
    std::fs::write(format!("{}/new.txt", tree.directory), "new").unwrap();
    let remove = async |force| lab.engine.discard_worktree(&lab.scope, &tree.directory, force).await.unwrap();
    let kept = remove(false).await;
    assert!(matches!(kept, WorktreeRemoval::HasChanges(_)), "{kept:?}");
    assert_eq!(state(&lab), (vec!["opencode/one".to_owned()], 1));
    assert_eq!(remove(true).await, WorktreeRemoval::Removed(tree.directory.clone()));
    assert_eq!(state(&lab), (Vec::new(), 0));
}

#[tokio::test]
async fn a_session_created_in_a_workspace_works_there() {
    let lab = Lab::new();
    let mut recorder = lab.recorder().await;
    let made = lab.engine.create_workspace(&lab.scope, workspace("wrk_one", None)).await.unwrap();
    recorder.wait_for(|event| matches!(event, EventBody::WorktreeReady { .. })).await;
    let directory = lab.engine.workspace_directory(&lab.scope, "wrk_one").await.unwrap();
    assert_eq!(Some(&directory), made.directory.as_ref());
    // Seen from the project's main tree and from the workspace itself.
    for from in [&lab.scope.directory, &directory] {
        let scope = Scope { directory: from.clone(), workspace: Some("wrk_one".to_owned()) };
        let session = lab.engine.create_session(&scope, CreateSession::default()).await.unwrap();
        assert_eq!((session.workspace_id.as_deref(), &session.directory), (Some("wrk_one"), &directory));
    }
    // The id alone is a note.
    let input = CreateSession { workspace_id: Some("wrk_one".to_owned()), ..CreateSession::default() };
    let session = lab.engine.create_session(&lab.scope, input).await.unwrap();
    assert_eq!((session.workspace_id.as_deref(), &session.directory), (Some("wrk_one"), &lab.scope.directory));
}

#[tokio::test]
async fn a_workspace_is_reached_only_from_its_project_and_while_it_exists() {
    let lab = Lab::new();
    let mut recorder = lab.recorder().await;
    let made = lab.engine.create_workspace(&lab.scope, workspace("wrk_one", None)).await.unwrap();
    recorder.wait_for(|event| matches!(event, EventBody::WorktreeReady { .. })).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().to_str().unwrap().to_owned();
    for (directory, id) in [(&elsewhere, "wrk_one"), (&lab.scope.directory, "wrk_none")] {
        let scope = Scope { directory: directory.clone(), workspace: Some(id.to_owned()) };
        let missing = lab.engine.workspace_directory(&scope, id).await.unwrap_err();
        assert!(matches!(&missing, HostError::NotFound { what: "workspace", .. }), "{missing:?}");
        let refused = lab.engine.create_session(&scope, CreateSession::default()).await.unwrap_err();
        assert!(matches!(&refused, HostError::NotFound { what: "workspace", .. }), "{refused:?}");
    }
    std::fs::remove_dir_all(made.directory.unwrap()).unwrap();
    let gone = lab.engine.workspace_directory(&lab.scope, "wrk_one").await.unwrap_err();
    assert!(matches!(&gone, HostError::Conflict(why) if why.contains("wrk_one")), "{gone:?}");
}

#[tokio::test]
async fn linked_worktrees_are_listed_reset_and_removed() {
    let lab = Lab::new();
    let mut recorder = lab.recorder().await;
    let tree = lab.engine.create_linked_worktree(&lab.scope, named("one")).await.unwrap();
    recorder.wait_for(|event| matches!(event, EventBody::WorktreeReady { .. })).await;
    assert_eq!(lab.engine.linked_worktrees(&lab.scope).await.unwrap(), std::slice::from_ref(&tree.directory));
    let new = std::path::Path::new(&tree.directory).join("new.txt");
    std::fs::write(&new, "new").unwrap();
    lab.engine.reset_linked_worktree(&lab.scope, &tree.directory).await.unwrap();
    assert!(!new.exists());
    std::fs::write(&new, "new").unwrap();
    let reader = lab.engine.with_caller(Caller {
        capabilities: CallerCapabilities { work: false, ..CallerCapabilities::default() },
        ..Caller::default()
    });
    for refused in [
        reader.reset_linked_worktree(&lab.scope, &tree.directory).await,
        reader.remove_linked_worktree(&lab.scope, &tree.directory).await.map(drop),
        reader.create_linked_worktree(&lab.scope, named("two")).await.map(drop),
        reader.create_workspace(&lab.scope, workspace("wrk_one", None)).await.map(drop),
        reader.remove_workspace(&lab.scope, "wrk_one").await.map(drop),
    ] {
        assert!(matches!(&refused, Err(HostError::Forbidden(_))), "{refused:?}");
    }
    assert_eq!(lab.engine.remove_linked_worktree(&lab.scope, &tree.directory).await.unwrap(), tree.directory);
    assert_eq!((state(&lab), lab.engine.linked_worktrees(&lab.scope).await.unwrap()), ((Vec::new(), 0), Vec::new()));
}
