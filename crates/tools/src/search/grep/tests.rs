use super::*;
use crate::tool::registry::testing::Workspace;
use std::os::unix::fs::symlink;

fn set_age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - std::time::Duration::from_secs(seconds);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[tokio::test]
async fn output_matches_the_recordings() {
    let ws = Workspace::new();
    let main = ws.file("src/main.rs", "fn main() {\n    println!(\"hi\");\n}\n");
    ws.file("notes.md", "hi there\n");
    let input = json!({"pattern": "hi", "include": "*.rs"});
    let needs = ws.needs("grep", input.clone()).await.unwrap();
    assert_eq!((needs.len(), needs[0].permission.as_str(), needs[0].patterns[0].as_str()), (1, "grep", "hi"));
    let output = ws.run("grep", input).await.unwrap();
    assert_eq!(output.output, format!("Found 1 matches\n{}:\n  Line 2:     println!(\"hi\");\n", main.display()));
    assert_eq!((output.title.as_str(), output.metadata), ("hi", object(json!({"matches": 1, "truncated": false}))));
    let glob = ws.run("glob", json!({"pattern": "**/*.rs"})).await.unwrap();
    assert_eq!((glob.title.as_str(), glob.output.as_str()), ("", main.to_str().unwrap()));
    assert_eq!(glob.metadata, object(json!({"count": 1, "truncated": false})));
    let none = ws.run("glob", json!({"pattern": "*.py"})).await.unwrap();
    assert_eq!((none.output.as_str(), &none.metadata["count"]), ("No files found", &json!(0)));
    assert_eq!(ws.run("grep", json!({"pattern": "zebra"})).await.unwrap().output, "No files found");
}

#[tokio::test]
async fn the_newest_file_comes_first() {
    let ws = Workspace::new();
    let (a, b, c) = (ws.file("a.txt", "x"), ws.file("b.txt", "x"), ws.file("c.txt", "x"));
    set_age(&a, 50);
    set_age(&b, 10);
    set_age(&c, 90);
    let glob = ws.run("glob", json!({"pattern": "*.txt"})).await.unwrap().output;
    assert_eq!(glob, format!("{}\n{}\n{}", b.display(), a.display(), c.display()));
    let grep = ws.run("grep", json!({"pattern": "x"})).await.unwrap().output;
    let places: Vec<usize> = [&b, &a, &c].map(|p| grep.find(p.to_str().unwrap()).unwrap()).into();
    assert!(places.is_sorted(), "{grep}");
}

#[tokio::test]
async fn hidden_files_are_found_but_ignored_and_git_files_are_not() {
    let ws = Workspace::new();
    ws.file(".gitignore", "target/\n*.log\n!kept.log\n.cache/\n.secret\n");
    ws.file("sub/.gitignore", "local\n");
    ws.file(".ignore", "vendor/\n");
    let found = [
        ".github/workflows/ci.yml",
        ".env.example",
        ".config/.deep/.file",
        "src/.hidden/a.rs",
        "seen.txt",
        "kept.log",
        "sub/.npmrc",
        ".gitattributes",
        "a.git/x",
        ".github.d/x",
        "git/config",
    ];
    let left_out = [
        ".git/config",
        ".git/hooks/pre-commit",
        "sub/module/.git/config",
        "tree/.git",
        "target/out.txt",
        "a.log",
        ".cache/x",
        ".secret",
        "deep/.secret",
        "sub/local",
        "vendor/x",
    ];
    for name in found.iter().chain(&left_out) {
        ws.file(name, "needle\n");
    }
    ws.file("binary", b"needle\0needle");
    let mut want: Vec<String> = found.iter().map(|name| ws.path(name).display().to_string()).collect();
    want.sort();
    let grep = ws.run("grep", json!({"pattern": "needle"})).await.unwrap().output;
    let mut files: Vec<&str> = grep.lines().filter_map(|line| line.strip_suffix(':')).collect();
    files.sort_unstable();
    assert_eq!(files, want);
    want.extend([".gitignore", "sub/.gitignore", ".ignore", "binary"].map(|name| ws.path(name).display().to_string()));
    want.sort();
    let glob = ws.run("glob", json!({"pattern": "**/*"})).await.unwrap().output;
    let mut files: Vec<&str> = glob.lines().collect();
    files.sort_unstable();
    assert_eq!(files, want);
    for (pattern, name) in [
        ("*.yml", ".github/workflows/ci.yml"),
        (".github/**/*.yml", ".github/workflows/ci.yml"),
        ("**/.npmrc", "sub/.npmrc"),
    ] {
        let glob = ws.run("glob", json!({"pattern": pattern})).await.unwrap().output;
        assert_eq!(glob, ws.path(name).display().to_string(), "{pattern}");
    }
    // A named file or folder is searched even if ignored.
    for (path, include) in
        [(".github", None), (".", Some(".github/**")), ("target", None), ("seen.txt", None), (".git/hooks", None)]
    {
        let output = ws.run("grep", json!({"pattern": "needle", "path": path, "include": include})).await.unwrap();
        assert_eq!(output.metadata["matches"], 1, "{path} {include:?}");
    }
}

#[tokio::test]
async fn a_glob_is_searched_from_the_folder_that_it_names() {
    let ws = Workspace::new();
    std::fs::create_dir(ws.path(".git")).unwrap();
    ws.file(".gitignore", "out/\n");
    for name in ["src/main.rs", "src/a[b]/deep.rs", "out/built.rs", "top.rs"] {
        ws.file(name, "");
    }
    let found = async |input| {
        let output = ws.run("glob", input).await.unwrap().output;
        let below = |path| Path::new(path).strip_prefix(ws.root()).unwrap().display().to_string();
        let mut names: Vec<String> = output.lines().map(below).collect();
        names.sort();
        names
    };
    let absolute = |pattern: &str| format!("{}/{pattern}", ws.root().display());
    assert_eq!(found(json!({"pattern": "src/**/*.rs"})).await, ["src/a[b]/deep.rs", "src/main.rs"]);
    assert_eq!(found(json!({"pattern": "src/*.rs"})).await, ["src/main.rs"]);
    assert_eq!(found(json!({"pattern": "src/main.rs"})).await, ["src/main.rs"]);
    assert_eq!(found(json!({"pattern": "./*.rs"})).await, ["top.rs"]);
    assert_eq!(found(json!({"pattern": "../*.rs", "path": "src"})).await, ["top.rs"]);
    assert_eq!(found(json!({"pattern": absolute("src/*.rs")})).await, ["src/main.rs"]);
    assert_eq!(found(json!({"pattern": absolute("src/*.rs"), "path": "src"})).await, ["src/main.rs"]);
    let odd = json!({"pattern": absolute("src/a[b]/*.rs"), "path": "src/a[b]"});
    assert_eq!(found(odd).await, ["src/a[b]/deep.rs"]);
    // Folders that the pattern's wildcards match may be ignored; a folder that it names is not, as with `path`.
    assert_eq!(found(json!({"pattern": "**/*.rs"})).await, ["src/a[b]/deep.rs", "src/main.rs", "top.rs"]);
    assert_eq!(found(json!({"pattern": "out/*.rs"})).await, ["out/built.rs"]);
    assert!(ws.fail("glob", json!({"pattern": "missing/*.rs"})).await.contains("missing is not a folder"));
}

#[tokio::test]
async fn a_glob_outside_the_workspace_needs_permission() {
    let ws = Workspace::new();
    let outside = ws.outside().join("other");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("a.conf"), "").unwrap();
    symlink(&outside, ws.path("link")).unwrap();
    let absolute = format!("{}/*.conf", outside.display());
    for (pattern, shown) in
        [(absolute.as_str(), &outside), ("../other/*.conf", &outside), ("link/*.conf", &ws.path("link"))]
    {
        let needs = ws.needs("glob", json!({"pattern": pattern})).await.unwrap();
        assert_eq!(needs[0].permission, "external_directory", "{pattern}");
        assert_eq!(needs[0].patterns, [format!("{}/*", outside.display())], "{pattern}");
        assert_eq!((needs[1].permission.as_str(), &needs[1].patterns[..]), ("glob", &[pattern.to_owned()][..]));
        let output = ws.run("glob", json!({"pattern": pattern})).await.unwrap();
        assert_eq!(output.output, shown.join("a.conf").display().to_string());
    }
}

#[tokio::test]
async fn results_are_bounded_and_say_so() {
    let ws = Workspace::new();
    for n in 0..5 {
        ws.file(&format!("f{n}.txt"), "needle\n".repeat(70));
    }
    ws.file("long.txt", format!("start{}", "y".repeat(10_000_000)));
    let output = ws.run("grep", json!({"pattern": "needle"})).await.unwrap();
    assert!(output.output.starts_with("Found 350 matches (showing first 100)\n"), "{}", &output.output[..60]);
    assert_eq!(output.output.matches("  Line ").count(), 100);
    assert_eq!(output.metadata["truncated"], true);
    let long = ws.run("grep", json!({"pattern": "start"})).await.unwrap();
    assert!(long.output.len() < 2500 && long.output.trim_end().ends_with("..."));
    for n in 0..150 {
        ws.file(&format!("many/{n}.md"), "");
    }
    let glob = ws.run("glob", json!({"pattern": "*.md"})).await.unwrap();
    assert_eq!((glob.metadata["count"].clone(), glob.metadata["truncated"].clone()), (json!(100), json!(true)));
}

#[tokio::test]
async fn invalid_patterns_and_paths() {
    let ws = Workspace::new();
    assert!(ws.fail("grep", json!({"pattern": "(unclosed"})).await.contains("not a regular expression"));
    assert!(ws.fail("grep", json!({"pattern": "a\nb"})).await.contains("cannot span lines"));
    assert!(ws.fail("grep", json!({"pattern": "a", "path": "missing"})).await.contains("File not found"));
    assert!(ws.fail("glob", json!({"pattern": "a[", "path": "."})).await.contains("not a glob"));
    ws.file("plain.txt", "");
    assert!(ws.fail("glob", json!({"pattern": "*", "path": "plain.txt"})).await.contains("not a folder"));
}

#[tokio::test]
async fn links_and_loops_are_not_followed() {
    let ws = Workspace::new();
    std::fs::write(ws.outside().join("secret.txt"), "needle").unwrap();
    symlink(ws.outside(), ws.path("out")).unwrap();
    symlink(".", ws.path("loop")).unwrap();
    ws.file("a.txt", "needle");
    let output = ws.run("grep", json!({"pattern": "needle"})).await.unwrap();
    assert_eq!(output.metadata["matches"], 1);
    let needs = ws.needs("grep", json!({"pattern": "x", "path": "out"})).await.unwrap();
    assert_eq!(needs[0].permission, "external_directory");
    assert_eq!(needs[0].patterns, [format!("{}/*", ws.outside().display())]);
    let list = ws.run("list", json!({})).await.unwrap();
    assert_eq!(list.output, format!("{}/\n  a.txt\n", ws.root().display()));
}

#[tokio::test]
async fn a_cancelled_search_ends() {
    let ws = Workspace::new();
    ws.file("a.txt", "x");
    let ctx = ws.context();
    ctx.cancel.cancel();
    assert_eq!(ws.run_in(ctx, "grep", json!({"pattern": "x"})).await, Err(ToolError::Aborted));
}

#[tokio::test]
async fn files_that_need_permission_are_skipped_and_counted() {
    let ws = Workspace::new();
    ws.file("a.txt", "needle\n");
    let secret = ws.file("keys.env", "needle in keys\n");
    let deep = ws.file("deep/more.env", "needle in more\n");
    // The output does not reveal whether the text is in them.
    ws.file("other.env", "nothing\n");
    let output = ws.run("grep", json!({"pattern": "needle"})).await.unwrap();
    assert!(output.output.starts_with("Found 1 matches\n"), "{}", output.output);
    assert!(!output.output.contains(" in "), "{}", output.output);
    let told = format!(
        "3 files were not searched, because the rules do not let you read them without asking: {}",
        deep.display()
    );
    assert!(output.output.contains(&told) && output.output.contains("Use read"), "{}", output.output);
    assert_eq!(output.metadata["matches"], 1);
    let output = ws.run("grep", json!({"pattern": "needle", "include": "*.env"})).await.unwrap();
    assert!(output.output.starts_with("No files found\n(3 files were not searched"), "{}", output.output);
    for n in 0..10 {
        ws.file(&format!("many/{n}.env"), "needle\n");
    }
    let output = ws.run("grep", json!({"pattern": "needle", "path": "many"})).await.unwrap().output;
    assert!(output.contains("(10 files were") && output.contains("4.env, …. Use read"), "{output}");
    // A named file needs permission, and is searched once that is given.
    for (input, file) in [
        (json!({"pattern": "needle", "path": "keys.env"}), &secret),
        (json!({"pattern": "needle", "include": "keys.env"}), &secret),
        (json!({"pattern": "needle", "path": "deep", "include": "more.env"}), &deep),
        (json!({"pattern": "needle", "include": "./deep/more.env"}), &deep),
    ] {
        let needs = ws.needs("grep", input.clone()).await.unwrap();
        let asked = file.strip_prefix(ws.root()).unwrap().to_string_lossy().into_owned();
        assert_eq!((needs[1].permission.as_str(), &needs[1].patterns), ("read", &vec![asked]), "{input}");
        let output = ws.run("grep", input.clone()).await.unwrap().output;
        assert!(output.starts_with("Found 1 matches") && output.contains(" in "), "{input}: {output}");
    }
    // Permission for the same name elsewhere was not given.
    ws.file("else/keys.env", "needle elsewhere\n");
    let output = ws.run("grep", json!({"pattern": "needle", "include": "keys.env"})).await.unwrap().output;
    assert!(output.contains("needle in keys") && !output.contains("elsewhere\n"), "{output}");
    assert!(output.contains("1 files were not searched"), "{output}");
}
