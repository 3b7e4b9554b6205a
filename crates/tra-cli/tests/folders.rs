//! Commands given a folder of runs instead of a run, as `tra demo` or `tra sweep` leave it.

mod common;

use std::path::Path;

use common::*;

/// Returns a folder with one tiny run per mechanism.
fn folder(mechanisms: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in mechanisms {
        let more = ["--steps", "1", "--attention", name, "--eval-splits", "iid"];
        run(&new_run(&folder.path().join(name), &more));
    }
    folder
}

#[test]
fn commands_for_one_run_list_the_runs_of_a_folder() {
    let folder = folder(&["tra", "rope"]);
    let place = folder.path().to_str().unwrap();
    let text = folder.path().join("text.txt");
    std::fs::write(&text, "some text\n").unwrap();
    let list = format!("it contains runs: {place}/rope, {place}/tra");
    for arguments in [
        &["eval", place][..],
        &["eval", place, "--best"],
        &["train", "--resume", place],
        &["generate", place, "--prompt", "x"],
        &["perplexity", place, "--text", text.to_str().unwrap()],
    ] {
        let error = refused(arguments);
        assert_eq!(error, format!("error: {place}: not a run directory, but {list}"));
    }
    // The list is short, and absent if there are no runs.
    for name in ["a", "b", "c"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        let config = folder.path().join("tra/config.toml");
        std::fs::copy(config, folder.path().join(name).join("config.toml")).unwrap();
    }
    let error = refused(&["eval", place]);
    assert!(error.ends_with(&format!("{place}/a, {place}/b, {place}/c and 2 more")), "{error}");
    let empty = tempfile::tempdir().unwrap();
    for command in ["eval", "report", "generate"] {
        let error = refused(&[command, empty.path().to_str().unwrap()]);
        assert!(error.ends_with("not a run directory: config.toml is missing"), "{error}");
    }
}

#[test]
fn a_report_on_a_folder_is_one_on_its_runs() {
    let folder = folder(&["tra", "rope"]);
    let place = folder.path().to_str().unwrap();
    let said = ok(&["report", place, "--no-pictures"]);
    assert_eq!(said.trim(), folder.path().join("report.html").to_str().unwrap());
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let page = read(&folder.path().join("report.html"));
    assert!(page.contains(&format!("{place}/rope")) && page.contains(&format!("{place}/tra")));

    // The page is the same as for the listed runs, and each run appears once.
    let out = folder.path().join("page.html");
    let (rope, tra) = (format!("{place}/rope"), format!("{place}/tra"));
    let given = ["report", &rope, &tra, place, "--no-pictures", "--out", out.to_str().unwrap()];
    ok(&given);
    assert_eq!(read(&out).replace("page.html", "report.html"), page);

    // Only the runs directly inside count. Deeper ones are listed in the error.
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir(outer.path().join("demo")).unwrap();
    std::fs::rename(&tra, outer.path().join("demo/tra")).unwrap();
    let outer = outer.path().to_str().unwrap();
    let error = refused(&["report", outer]);
    assert!(error.ends_with(&format!("but it contains a run: {outer}/demo/tra")), "{error}");
}
