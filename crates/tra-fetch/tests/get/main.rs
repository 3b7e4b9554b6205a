//! [`tra_fetch::get`] against a hub of our own on this machine.
#![cfg(feature = "hub")]

mod broken;
mod disk;
mod resumed;
mod server;
mod whole;

use std::path::{Path, PathBuf};
use std::time::Duration;

use server::{Fault, Server};
use tempfile::TempDir;
use tra_fetch::{FetchError, Observer, PATIENCE, Request, get};

const WIKITEXT: &str = "Salesforce/wikitext";
const TRAIN: &str = "wikitext-2-raw-v1/train-00000-of-00001.parquet";
const VALIDATION: &str = "wikitext-2-raw-v1/validation-00000-of-00001.parquet";

/// Patience where a test expects an error.
const SHORT: Duration = Duration::from_millis(500);

/// Records what an observer is told.
#[derive(Default)]
struct Told {
    present: Vec<String>,
    files: Vec<(String, u64)>,
    /// The numbers of bytes of the latest file.
    progress: Vec<u64>,
    finished: usize,
}

impl Observer for Told {
    fn present(&mut self, name: &str) {
        self.present.push(name.into());
    }

    fn file(&mut self, name: &str, bytes: u64) {
        self.files.push((name.into(), bytes));
        self.progress.clear();
    }

    fn progress(&mut self, done: u64) {
        self.progress.push(done);
    }

    fn finished(&mut self) {
        assert_eq!(self.progress.last(), self.files.last().map(|(_, bytes)| bytes));
        assert!(self.progress.is_sorted());
        self.finished += 1;
    }
}

/// A hub with a data set, and a folder to fetch it to.
struct Stage {
    server: Server,
    folder: TempDir,
}

impl Stage {
    /// WikiText-2 as on the hub: a large file, a small one kept in git itself, and others beside.
    fn wikitext() -> Self {
        let server = Server::start(WIKITEXT);
        server.large("wikitext-103-raw-v1/train-00000-of-00002.parquet", 5_000);
        server.large("wikitext-2-v1/train-00000-of-00001.parquet", 5_000);
        server.large(TRAIN, 300_000);
        server.small(VALIDATION, 60_000);
        server.small("README.md", 2_000);
        server.small(".gitattributes", 100);
        Self { server, folder: tempfile::tempdir().unwrap() }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Where a file of the repository ends up.
    fn path(&self, file: &str) -> PathBuf {
        self.out().join(Path::new(file).file_name().unwrap())
    }

    fn get_named(
        &self,
        name: &str,
        patience: Duration,
    ) -> (Result<Vec<PathBuf>, FetchError>, Told) {
        let out = self.out();
        let address = self.server.address();
        let request = Request { endpoint: &address, patience, ..Request::new(name, &out) };
        let mut told = Told::default();
        let result = get(&request, &mut told);
        (result, told)
    }

    fn get(&self) -> Told {
        let (result, told) = self.get_named("wikitext-2", PATIENCE);
        assert_eq!(result.unwrap(), [self.path(TRAIN), self.path(VALIDATION)]);
        self.check();
        told
    }

    /// The error, which must be a single line.
    fn error(&self) -> (FetchError, String) {
        let error = self.get_named("wikitext-2", SHORT).0.unwrap_err();
        let line = error.to_string();
        assert!(!line.contains('\n'), "{line}");
        (error, line)
    }

    /// Both files are whole and nothing else is left.
    fn check(&self) {
        for file in [TRAIN, VALIDATION] {
            let content = std::fs::read(self.path(file)).unwrap();
            assert!(content == self.server.content(file), "{file} differs");
        }
        assert_eq!(std::fs::read_dir(self.out()).unwrap().count(), 3);
    }

    /// Where hf-hub keeps a file until it is whole.
    fn part(&self, file: &str) -> PathBuf {
        let blobs = self.out().join(".download/datasets--Salesforce--wikitext/blobs");
        blobs.join(format!("{}.part", self.server.checksum(file)))
    }
}
