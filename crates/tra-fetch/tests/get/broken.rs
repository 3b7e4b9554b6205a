//! Downloads that fail.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use super::server::LISTING;
use super::*;

#[test]
fn a_corrupted_byte_is_found_out() {
    for file in [TRAIN, VALIDATION] {
        let stage = Stage::wikitext();
        stage.server.fault(file, Fault::Corrupt(40_000));
        let (error, line) = stage.error();
        let expected = &stage.server.checksum(file)[..12];
        assert!(matches!(error, FetchError::Mismatch { .. }), "{error:?}");
        assert!(line.contains(&format!("instead of {expected}…: deleted; run it again")), "{line}");
        assert!(!stage.path(file).exists());
        assert!(!stage.part(file).exists() && !stage.part(file).with_extension("").exists());
        stage.server.mend();
        stage.get();
    }
}

#[test]
fn a_tag_that_is_no_checksum_is_refused_before_the_download() {
    for etag in ["abc-1", "../../../../evil", "0123456789abcdef"] {
        let stage = Stage::wikitext();
        stage.server.fault(TRAIN, Fault::Etag(etag));
        let line = stage.error().1;
        assert!(line.contains(&format!("(its ETag {etag:?} is not a checksum)")), "{line}");
        assert_eq!(stage.server.sent(), []);
    }
    let stage = Stage::wikitext();
    let other = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    stage.server.fault(TRAIN, Fault::Etag(other));
    let line = stage.error().1;
    assert!(line.contains("instead of 5891b5b522d5…"), "{line}");
}

#[test]
fn statuses_are_told_with_what_they_mean() {
    for (status, hint) in [
        (401, "it needs a login (`hf auth login`), or does not exist any more"),
        (404, "it does not exist; has it been moved or renamed?"),
        (500, "the server has a problem; run it again later"),
    ] {
        let stage = Stage::wikitext();
        let place = format!("{}/datasets/{WIKITEXT}", stage.server.address());
        stage.server.fault(LISTING, Fault::Status(status));
        assert_eq!(stage.error().1, format!("HTTP {status} for {place}: {hint}"));

        stage.server.mend();
        stage.server.fault(VALIDATION, Fault::Status(status));
        let place = format!("{place}/resolve/{}/{VALIDATION}", server::COMMIT);
        assert_eq!(stage.error().1, format!("HTTP {status} for {place}: {hint}"));
        // What was whole before is kept.
        stage.server.mend();
        assert_eq!(stage.get().present, ["train-00000-of-00001.parquet"]);
    }
}

#[test]
fn no_server_means_files_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{address}/");
    let request = Request { endpoint: &endpoint, ..Request::new("wikitext-103", folder.path()) };
    let line = get(&request, &mut ()).unwrap_err().to_string();
    let out = folder.path().display();
    let by_hand = format!(
        "): supply the files by hand: put the parquet files of wikitext-103-raw-v1 into {out} and \
         pass that folder to --text; they are at https://huggingface.co/datasets/Salesforce/wikitext"
    );
    assert!(line.starts_with(&format!("cannot reach {address} (")), "{line}");
    assert!(line.ends_with(&by_hand) && !line.contains('\n'), "{line}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // A folder that was made for it goes as well.
    let new = folder.path().join("new");
    get(&Request { out: &new, ..request }, &mut ()).unwrap_err();
    assert!(!new.exists());
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let stage = Stage::wikitext();
    stage.server.fault(LISTING, Fault::Stall(0));
    let start = Instant::now();
    let line = stage.error().1;
    assert!(line.contains("(silent for 500ms): supply the files by hand"), "{line}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn one_download_at_a_time() {
    let stage = Stage::wikitext();
    stage.server.fault(LISTING, Fault::Stall(0));
    thread::scope(|scope| {
        let first = scope.spawn(|| stage.get_named("wikitext-2", SHORT).0);
        while stage.server.requests() == 0 {
            thread::yield_now();
        }
        assert!(matches!(stage.error().0, FetchError::Busy { .. }));
        first.join().unwrap().unwrap_err();
    });
    stage.server.mend();
    stage.get();
}

#[test]
fn something_else_than_a_hub() {
    let stage = Stage::wikitext();
    for text in ["<html>hello</html>", r#"{"sha":"../..","siblings":[]}"#] {
        stage.server.fault(LISTING, Fault::Text(text));
        let line = stage.error().1;
        let question = format!("is {} a Hugging Face hub?", stage.server.address());
        assert!(line.ends_with(&question), "{line}");
    }
    let empty = r#"{"sha":"0123","siblings":[{"rfilename":"wikitext-2-raw-v1/../../a"}]}"#;
    stage.server.fault(LISTING, Fault::Text(empty));
    assert!(matches!(stage.error().0, FetchError::NoFiles { .. }));
}

#[test]
fn unknown_names_list_the_known() {
    let stage = Stage::wikitext();
    let error = stage.get_named("wikitext", SHORT).0.unwrap_err();
    let line = r#"no data set "wikitext"; there are wikitext-103, wikitext-2, flipflop"#;
    assert_eq!(error.to_string(), line);
    assert!(!stage.out().exists());
}

#[test]
fn a_disk_that_says_no() {
    let stage = Stage::wikitext();
    let cache = stage.part(TRAIN).parent().unwrap().parent().unwrap().to_owned();
    fs::create_dir_all(&cache).unwrap();
    // A file where hf-hub wants a folder stops it as a full disk would.
    fs::write(cache.join("blobs"), "").unwrap();
    let (error, line) = stage.error();
    assert!(matches!(error, FetchError::Io { .. }), "{error:?}");
    let start = format!("cannot write into {}: ", stage.out().display());
    assert!(line.starts_with(&start), "{line}");

    // Its links are another matter: nobody needs them.
    fs::rename(cache.join("blobs"), cache.join("snapshots")).unwrap();
    stage.get();
}

#[test]
fn a_folder_that_cannot_be() {
    let stage = Stage::wikitext();
    fs::write(stage.out(), "a file").unwrap();
    let (error, line) = stage.error();
    assert!(matches!(error, FetchError::Io { .. }), "{error:?}");
    assert!(line.contains(&stage.out().display().to_string()), "{line}");
}
