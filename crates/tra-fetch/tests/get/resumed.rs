//! Downloads that were interrupted, and go on.

use std::fs;

use super::server::Sent;
use super::*;

/// The only content sent for the file since the last look.
fn sent(stage: &Stage, file: &str) -> Sent {
    let mut all = stage.server.sent();
    all.retain(|sent| sent.file == file);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn a_cut_download_goes_on_where_it_was() {
    for (file, bytes) in [(TRAIN, 300_000), (VALIDATION, 60_000)] {
        for fault in [Fault::Cut(50_001), Fault::CutUnsized(50_001)] {
            let stage = Stage::wikitext();
            stage.server.fault(file, fault);
            let (error, line) = stage.error();
            assert!(matches!(error, FetchError::CutShort { .. }), "{error:?}");
            assert!(line.ends_with("run it again to continue"), "{line}");
            assert!(!stage.path(file).exists());
            assert_eq!(sent(&stage, file).bytes, 50_001);

            stage.server.mend();
            let told = stage.get();
            let rest = sent(&stage, file);
            assert_eq!((rest.from, rest.bytes), (50_001, bytes - 50_001));
            // The progress left over is the last file's: it starts with what was there.
            assert_eq!(told.progress[0], if file == VALIDATION { 50_001 } else { 0 });
        }
    }
}

#[test]
fn a_silent_server_is_given_up_and_resumed() {
    let stage = Stage::wikitext();
    stage.server.fault(TRAIN, Fault::Stall(70_000));
    let (error, line) = stage.error();
    assert!(matches!(error, FetchError::CutShort { .. }), "{error:?}");
    assert!(line.contains("(server silent for 500ms)"), "{line}");
    stage.server.mend();
    stage.server.sent();
    stage.get();
    assert_eq!(sent(&stage, TRAIN).bytes, 230_000);
}

#[test]
fn killed_just_before_the_end() {
    let stage = Stage::wikitext();
    let part = stage.part(TRAIN);
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, stage.server.content(TRAIN)).unwrap();
    let told = stage.get();
    assert_eq!(told.finished, 2);
    assert!(stage.server.sent().iter().all(|sent| sent.file != TRAIN));
}

#[test]
fn a_beginning_of_something_else_is_found_out() {
    let stage = Stage::wikitext();
    let part = stage.part(TRAIN);
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, "not the file's beginning").unwrap();
    assert!(matches!(stage.error().0, FetchError::Mismatch { .. }));
    assert_eq!(sent(&stage, TRAIN).from, 24);
    // The bad beginning is gone with it.
    stage.get();
    assert_eq!(sent(&stage, TRAIN).from, 0);
}

#[test]
fn a_blob_of_another_length_is_dropped() {
    let stage = Stage::wikitext();
    let blob = stage.part(TRAIN).with_extension("");
    for bytes in [20, 300_001] {
        fs::create_dir_all(blob.parent().unwrap()).unwrap();
        fs::write(&blob, vec![0; bytes]).unwrap();
        stage.server.fault(TRAIN, Fault::Cut(50_000 + bytes / 2));
        assert!(matches!(stage.error().0, FetchError::CutShort { .. }));
    }
    stage.server.mend();
    stage.server.sent();
    stage.get();
    assert_eq!(sent(&stage, TRAIN).from, 200_000);
}

#[test]
fn a_beginning_longer_than_the_file_is_dropped() {
    let stage = Stage::wikitext();
    let part = stage.part(TRAIN);
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, vec![0; 300_001]).unwrap();
    stage.get();
    assert_eq!(sent(&stage, TRAIN).from, 0);
}
