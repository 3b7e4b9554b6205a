//! A disk that fails while a data set is put in place.

use std::fs;

use tra_disk::fault::{self, Fault};

use super::*;

/// Every operation of ours fails once, in every way; hf-hub writes its own files by itself.
#[test]
fn after_any_failure_the_next_call_completes_the_data() {
    let operations = {
        let stage = Stage::wikitext();
        let counted = fault::inject(&stage.out(), u64::MAX, Fault::NoSpace);
        stage.get();
        counted.operations()
    };
    assert!(operations > 15, "{operations}");
    let mut failed = 0;
    for fault in Fault::ALL {
        for at in 0..operations {
            let stage = Stage::wikitext();
            let injected = fault::inject(&stage.out(), at, fault);
            let result = stage.get_named("wikitext-2", PATIENCE).0;
            drop(injected);
            if let Err(error) = result {
                failed += 1;
                let line = error.to_string();
                assert!(!line.contains('\n') && line.contains("data"), "{fault:?} {at}: {line}");
            }
            let paths = stage.get_named("wikitext-2", PATIENCE).0;
            let paths = paths.unwrap_or_else(|error| panic!("{fault:?} at {at}: {error}"));
            assert_eq!(paths, [stage.path(TRAIN), stage.path(VALIDATION)]);
            for file in [TRAIN, VALIDATION] {
                let content = fs::read(stage.path(file)).unwrap();
                assert!(content == stage.server.content(file), "{fault:?} at {at}: {file}");
            }
            let names = fs::read_dir(stage.out()).unwrap();
            let names: Vec<_> = names.map(|e| e.unwrap().file_name()).collect();
            let is_partial = |name: &std::ffi::OsString| name.to_string_lossy().contains("partial");
            assert!(!names.iter().any(is_partial), "{fault:?} at {at}: {names:?}");
        }
    }
    assert!(failed > 20, "{failed}");
}
