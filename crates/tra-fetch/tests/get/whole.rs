//! Downloads that succeed, and what is already there.

use std::fs;

use super::*;

#[test]
fn large_and_small_files_arrive_checked() {
    let stage = Stage::wikitext();
    let told = stage.get();
    let names: Vec<_> = told.files.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    assert_eq!(
        names,
        [("train-00000-of-00001.parquet", 300_000), ("validation-00000-of-00001.parquet", 60_000)]
    );
    assert_eq!((told.finished, told.present.len()), (2, 0));
    let fetched: Vec<_> = stage.server.sent().into_iter().map(|sent| sent.file).collect();
    assert_eq!(fetched, [TRAIN, VALIDATION]);

    let notes = fs::read_to_string(stage.out().join("checksums.json")).unwrap();
    for part in [server::COMMIT, &stage.server.checksum(TRAIN), &stage.server.checksum(VALIDATION)]
    {
        assert!(notes.contains(part), "{part} is not in {notes}");
    }
}

#[test]
fn a_second_call_asks_nothing() {
    let stage = Stage::wikitext();
    stage.get();
    let before = stage.server.requests();
    let told = stage.get();
    assert_eq!(stage.server.requests(), before);
    assert_eq!((told.files.len(), told.present.len()), (0, 2));
}

#[test]
fn a_changed_file_is_fetched_again_and_no_other() {
    let stage = Stage::wikitext();
    stage.get();
    stage.server.sent();
    let mut content = stage.server.content(TRAIN);
    content[1234] ^= 1;
    fs::write(stage.path(TRAIN), content).unwrap();
    let told = stage.get();
    assert_eq!(told.present, ["validation-00000-of-00001.parquet"]);
    assert_eq!(stage.server.sent().len(), 1);

    fs::remove_file(stage.path(VALIDATION)).unwrap();
    assert_eq!(stage.get().present, ["train-00000-of-00001.parquet"]);
}

#[test]
fn files_put_there_by_hand_are_kept() {
    let stage = Stage::wikitext();
    fs::create_dir(stage.out()).unwrap();
    for file in [TRAIN, VALIDATION] {
        fs::write(stage.path(file), stage.server.content(file)).unwrap();
    }
    assert_eq!(stage.get().present.len(), 2);
    assert_eq!(stage.server.sent(), []);
}

#[test]
fn files_of_others_are_not_overwritten() {
    let stage = Stage::wikitext();
    fs::create_dir(stage.out()).unwrap();
    fs::write(stage.path(VALIDATION), "mine").unwrap();
    let (error, line) = stage.error();
    assert!(matches!(error, FetchError::NotOurs { path } if path == stage.path(VALIDATION)));
    assert!(line.ends_with("is in the way: it does not come from the hub; move it away"), "{line}");
    assert_eq!(fs::read(stage.path(VALIDATION)).unwrap(), b"mine");

    fs::remove_file(stage.path(VALIDATION)).unwrap();
    assert_eq!(stage.get().present, ["train-00000-of-00001.parquet"]);
}

#[test]
fn a_folder_holds_one_data_set() {
    let stage = Stage::wikitext();
    stage.get();
    let error = stage.get_named("wikitext-103", SHORT).0.unwrap_err();
    let said = format!("{} contains wikitext-2: ", stage.out().display());
    assert_eq!(error.to_string(), said + "choose another folder for wikitext-103");
    stage.check();

    fs::write(stage.out().join("checksums.json"), r#"{"mine": 1}"#).unwrap();
    assert!(matches!(stage.error().0, FetchError::NotOurNotes { .. }));
}

#[test]
fn flipflop_is_all_data_of_its_repository() {
    let stage = Stage { server: Server::start("synthseq/flipflop"), ..Stage::wikitext() };
    stage.server.small("README.md", 100);
    stage.server.small(".gitattributes", 100);
    stage.server.large("train.tar.gz", 9_000);
    stage.server.small("sparse/val.csv", 700);
    let paths = stage.get_named("flipflop", PATIENCE).0.unwrap();
    let expected = ["sparse/val.csv", "train.tar.gz"];
    assert_eq!(paths, expected.map(|name| stage.out().join(name)));
    for (path, name) in paths.iter().zip(expected) {
        assert_eq!(fs::read(path).unwrap(), stage.server.content(name));
    }
}
