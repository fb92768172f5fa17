//! Tests of changes and patches in real repositories.

use testkit::TempProject;

use super::*;

fn vcs(project: &TempProject, below: &str) -> Vcs {
    Vcs::new(&Exec::direct(), &project.path().join(below), project.path(), &project.root().join("scratch"))
}

fn changed(list: &[FileStatus]) -> Vec<(&str, u64, u64, FileDiffStatus)> {
    list.iter().map(|file| (&*file.path, file.added, file.removed, file.status)).collect()
}

fn changed_lines(list: &[FilePatch]) -> Vec<(&str, u64, u64)> {
    list.iter().map(|diff| (&*diff.file.path, diff.file.added, diff.file.removed)).collect()
}

async fn status(vcs: &Vcs) -> Vec<FileStatus> {
    let status = vcs.status().await.unwrap();
    assert!(status.missing.is_empty(), "{:?}", status.missing);
    status.list
}

fn changed_project() -> TempProject {
    let project = TempProject::new();
    project.write("sub/kept.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    project.write("gone.txt", "x\n");
    project.commit("files");
    project.write("sub/kept.txt", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n");
    std::fs::remove_file(project.path().join("gone.txt")).unwrap();
    project.write("sub/new one ü.txt", "a\nb\n");
    project.write("data.bin", b"\0\x01");
    project.write("staged.txt", "s\n");
    project.git(&["add", "staged.txt"]);
    project
}

#[tokio::test]
async fn changes_are_listed() {
    use FileDiffStatus::{Added, Deleted, Modified};
    let project = changed_project();
    assert_eq!(
        changed(&status(&vcs(&project, "")).await),
        [
            ("data.bin", 0, 0, Added),
            ("gone.txt", 0, 1, Deleted),
            ("staged.txt", 1, 0, Added),
            ("sub/kept.txt", 1, 1, Modified),
            ("sub/new one ü.txt", 2, 0, Added),
        ]
    );
    // Below a folder only its own changes are listed, with the same names.
    let below = vcs(&project, "sub").diff(DiffBase::Commit, Some(0)).await.unwrap().list;
    let patch = below[0].patch.as_deref().unwrap();
    assert!(patch.ends_with("@@ -5 +5 @@\n-5\n+five\n"), "{patch}");
    assert!(below[1].patch.as_deref().unwrap().contains("+++ b/sub/new one ü.txt"), "{below:?}");
    let whole = vcs(&project, "sub").diff(DiffBase::Commit, None).await.unwrap().list;
    assert!(whole[0].patch.as_deref().unwrap().contains("\n 1\n 2\n"), "{whole:?}");
    // Nothing was staged, and no temporary file is left.
    assert!(project.git(&["status", "--porcelain"]).contains("?? data.bin"));
    assert_eq!(std::fs::read_dir(project.root().join("scratch")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_raw_patch_applies_to_another_tree() {
    let project = changed_project();
    let raw = vcs(&project, "").raw_patch().await.unwrap();
    let tree = project.root().join("tree");
    project.git(&["worktree", "add", "--quiet", "--detach", tree.to_str().unwrap()]);
    let other = Vcs::new(&Exec::direct(), &tree, &tree, &project.root().join("scratch"));
    other.apply(&raw).await.unwrap();
    assert_eq!(changed(&status(&other).await), changed(&status(&vcs(&project, "")).await));
    assert_eq!(std::fs::read(tree.join("data.bin")).unwrap(), b"\0\x01");
    // It does not apply a second time, and nothing of it is applied.
    assert!(other.apply(&raw).await.is_err());
    for refused in ["", "garbage", "--- /dev/null\n+++ b/../out.txt\n@@ -0,0 +1 @@\n+x\n"] {
        assert!(other.apply(refused.as_bytes()).await.is_err(), "{refused}");
    }
    assert!(!project.root().join("out.txt").exists());
}

#[tokio::test]
async fn a_change_with_the_same_size_and_time_is_found() {
    let project = TempProject::new();
    let moment = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    let set_time = |path: &str| {
        let file = std::fs::File::options().write(true).open(project.path().join(path)).unwrap();
        file.set_modified(moment).unwrap();
    };
    project.git(&["config", "core.trustctime", "false"]);
    project.write("README.md", "one\n");
    set_time("README.md");
    project.commit("one");
    project.write("untracked.txt", "u\n");
    set_time(".git/index");
    project.write("README.md", "two\n");
    set_time("README.md");
    let patch = vcs(&project, "").raw_patch().await.unwrap();
    assert!(String::from_utf8_lossy(&patch).contains("+two"), "{}", String::from_utf8_lossy(&patch));
}

#[tokio::test]
async fn a_long_list_is_truncated() {
    let project = TempProject::new();
    for number in 0..20 {
        project.write(format!("{number:03}"), "1\n");
    }
    project.commit("some");
    for number in 0..60 {
        project.write(format!("{number:03}"), "2\n2\n");
    }
    for number in 60..100 {
        project.write(format!("new/{number:03}"), "3\n");
    }
    let small = |below| Vcs { max_files: 50, ..vcs(&project, below) };
    let found = small("").status().await.unwrap();
    assert_eq!((found.list.len(), found.missing.as_slice()), (50, &["files"][..]));
    let counts = |number: usize| (found.list[number].added, found.list[number].removed);
    assert_eq!((found.list[49].path.as_str(), counts(0), counts(49)), ("049", (2, 1), (2, 0)));
    let found = small("").diff(DiffBase::Commit, Some(3)).await.unwrap();
    assert_eq!((found.list.len(), found.missing.as_slice()), (50, &["files"][..]));
    assert!(found.list.iter().all(|diff| diff.patch.is_some()));
    // Files beyond the limit are listed below their folder, and the raw patch has all of them.
    let below = small("new").status().await.unwrap();
    assert_eq!((below.list.len(), below.missing.len()), (40, 0));
    let raw = small("").raw_patch().await.unwrap();
    assert_eq!(String::from_utf8(raw).unwrap().matches("diff --git").count(), 100);
}

#[tokio::test]
async fn patches_share_one_bound() {
    let project = TempProject::new();
    for name in ["a", "b", "c"] {
        project.write(name, format!("{}\n", "x".repeat(600)));
    }
    project.write("small", "s\n");
    let small = || Vcs { max_patch_bytes: 1000, ..vcs(&project, "") };
    let found = small().diff(DiffBase::Commit, None).await.unwrap();
    assert_eq!(found.missing, ["patches"]);
    let shown: Vec<_> = found.list.iter().map(|diff| (diff.file.path.as_str(), diff.patch.is_some())).collect();
    assert_eq!(shown, [("a", true), ("b", false), ("c", false), ("small", false)]);
    assert_eq!(found.list[3].file.added, 1);
    for name in ["b", "c"] {
        std::fs::remove_file(project.path().join(name)).unwrap();
    }
    let found = small().diff(DiffBase::Commit, None).await.unwrap();
    assert!(found.missing.is_empty() && found.list.iter().all(|diff| diff.patch.is_some()), "{found:?}");
}

#[tokio::test]
async fn a_huge_file_is_not_diffed() {
    let project = TempProject::new();
    project.write("small", "s\n");
    std::fs::File::create(project.path().join("huge")).unwrap().set_len(2 << 30).unwrap();
    let found = vcs(&project, "").diff(DiffBase::Commit, None).await.unwrap();
    assert_eq!(changed_lines(&found.list), [("huge", 0, 0), ("small", 1, 0)]);
    assert_eq!((&found.list[0].patch, &*found.missing), (&None, &["lines", "patches"][..]));
    assert!(found.list[1].patch.is_some());
    assert_eq!(vcs(&project, "").status().await.unwrap().missing, ["lines"]);
    // A file that was too large before is compared as binary.
    std::fs::File::options().write(true).open(project.path().join("huge")).unwrap().set_len(17 << 20).unwrap();
    project.commit("huge");
    project.write("huge", "h\n");
    let found = vcs(&project, "").diff(DiffBase::Commit, None).await.unwrap();
    assert_eq!((changed_lines(&found.list), found.missing.len()), (vec![("huge", 0, 0)], 0));
    assert!(found.list[0].patch.as_deref().unwrap().contains("Binary files"), "{found:?}");
}

#[tokio::test]
async fn every_kind_of_change_is_listed() {
    use FileDiffStatus::{Added, Deleted, Modified};
    let project = TempProject::new();
    for name in ["forgotten", "same", "becomes-link", "becomes-folder", "both", "moved"] {
        project.write(name, format!("{name}\n"));
    }
    project.commit("files");
    // Kept in the tree but removed from the index: changed, or not at all.
    project.git(&["rm", "--quiet", "--cached", "forgotten", "same"]);
    project.write("forgotten", "f\n");
    for name in ["becomes-link", "becomes-folder"] {
        std::fs::remove_file(project.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink("same", project.path().join("becomes-link")).unwrap();
    project.write("becomes-folder/inner", "i\n");
    project.git(&["mv", "moved", "to: \"here\""]);
    // Changed after a stash.
    project.git(&["stash", "--quiet", "--", "both"]);
    project.write("both", "ours\n");
    project.write("staged and gone", "x\n");
    project.git(&["add", "staged and gone"]);
    std::fs::remove_file(project.path().join("staged and gone")).unwrap();
    project.git(&["init", "--quiet", "repository"]);
    project.write("repository/file", "of another\n");
    let seen = status(&vcs(&project, "")).await;
    assert_eq!(
        changed(&seen),
        [
            ("becomes-folder", 0, 1, Deleted),
            ("becomes-folder/inner", 1, 0, Added),
            ("becomes-link", 1, 1, Modified),
            ("both", 1, 1, Modified),
            ("forgotten", 1, 1, Modified),
            ("moved", 0, 1, Deleted),
            ("to: \"here\"", 1, 0, Added),
        ]
    );
}

#[tokio::test]
async fn lines_that_cannot_be_counted_are_reported_missing() {
    let project = TempProject::new();
    project.write("new", "x\n");
    // A file is where the comparison's index should go.
    let scratch = project.write("scratch", "");
    let vcs = Vcs::new(&Exec::direct(), project.path(), project.path(), &scratch);
    let found = vcs.status().await.unwrap();
    assert_eq!(found.missing, ["lines"]);
    let listed: Vec<_> = found.list.iter().map(|status| (status.path.as_str(), status.added)).collect();
    assert_eq!(listed, [("new", 0), ("scratch", 0)]);
}

#[tokio::test]
async fn branches_are_reported() {
    let project = TempProject::new();
    let info = |branch: Option<&str>, default: Option<&str>| Branches {
        branch: branch.map(str::to_owned),
        default_branch: default.map(str::to_owned),
    };
    assert_eq!(vcs(&project, "").branches().await.unwrap(), info(Some("main"), Some("main")));
    project.git(&["checkout", "--quiet", "-b", "feature"]);
    project.write("f.txt", "f\n");
    project.commit("feature");
    assert_eq!(vcs(&project, "").branches().await.unwrap(), info(Some("feature"), Some("main")));
    assert!(vcs(&project, "").diff(DiffBase::Commit, None).await.unwrap().list.is_empty());
    let since = vcs(&project, "").diff(DiffBase::Branch, None).await.unwrap().list;
    assert_eq!(since.iter().map(|diff| diff.file.path.as_str()).collect::<Vec<_>>(), ["f.txt"]);
    project.git(&["checkout", "--quiet", "--detach"]);
    assert_eq!(vcs(&project, "").branches().await.unwrap(), info(None, Some("main")));
}

#[tokio::test]
async fn a_repository_may_have_no_commit() {
    let project = TempProject::without_git();
    project.git(&["init", "--quiet", "--initial-branch=trunk"]);
    project.write("a.txt", "a\n");
    let vcs = vcs(&project, "");
    assert_eq!(vcs.branches().await.unwrap(), Branches { branch: Some("trunk".into()), default_branch: None });
    assert_eq!(changed(&status(&vcs).await), [("a.txt", 1, 0, FileDiffStatus::Added)]);
    assert!(vcs.diff(DiffBase::Branch, None).await.unwrap().list[0].patch.is_some());
}

#[test]
fn names_are_found_in_headers() {
    for name in ["x", "a b", "a b/a b", "ü", "b/x b/x"] {
        assert_eq!(name_in_header(&format!("a/{name} b/{name}")).as_deref(), Some(name));
    }
    for odd in ["", "a/x b/y", "\"a/x\\ty\" \"b/x\\ty\"", "a/"] {
        assert_eq!(name_in_header(odd), None);
    }
}
