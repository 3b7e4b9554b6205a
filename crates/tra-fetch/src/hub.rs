//! Talks to one repository of the hub through hf-hub 0.5.
//!
//! hf-hub writes a file to `blobs/ETAG.part` in its cache and renames it to `blobs/ETAG` when the
//! server has closed the connection. It continues an existing `.part` with a `Range` request. It
//! checks neither length nor content, and fails on some states that an interruption leaves behind;
//! [`Hub::download`] handles these. Its own retries stay off: after a failed request they append the
//! file from its beginning.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, Repo};

use crate::checksum::Checksum;
use crate::notes::Note;
use crate::watch::{Trouble, watch};

/// The repository of a data set.
pub(crate) struct Hub {
    api: Api,
    repo: Repo,
    cache: Cache,
    patience: Duration,
}

/// What the hub states about a file.
pub(crate) struct Stated {
    etag: String,
    pub(crate) note: Note,
}

impl Hub {
    /// Opens a repository. hf-hub reads the login that `hf auth login` has stored, and for that the
    /// environment (`HF_HOME`, `HF_TOKEN`).
    pub(crate) fn new(
        endpoint: &str,
        repository: &str,
        folder: &Path,
        patience: Duration,
    ) -> Result<Self, Trouble> {
        let api = ApiBuilder::from_env()
            .with_endpoint(endpoint.into())
            .with_cache_dir(folder.into())
            .with_progress(false)
            .build()
            .map_err(Trouble::Api)?;
        let repo = Repo::dataset(repository.into());
        Ok(Self { api, repo, cache: Cache::new(folder.into()), patience })
    }

    /// Returns the revision and the names of all its files. From then on files are downloaded at that
    /// revision, so that they belong together even if somebody pushes in between.
    pub(crate) fn list(&mut self) -> Result<(String, Vec<String>), Trouble> {
        let repo = self.api.repo(self.repo.clone());
        let info = watch(self.patience, |_| (), move |_| repo.info())?;
        // The revision becomes part of paths in the cache.
        if info.sha.is_empty() || !info.sha.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
            return Err(Trouble::Answer(format!("{:?} is not a revision", info.sha)));
        }
        let id = self.repo.url().trim_start_matches("datasets/").to_owned();
        self.repo = Repo::with_revision(id, hf_hub::RepoType::Dataset, info.sha.clone());
        Ok((info.sha, info.siblings.into_iter().map(|file| file.rfilename).collect()))
    }

    /// Returns the address of a file.
    pub(crate) fn url(&self, file: &str) -> String {
        self.api.repo(self.repo.clone()).url(file)
    }

    /// Returns length and checksum of a file. A tag that is not a checksum is an error before anything
    /// is downloaded, because the file could not be checked.
    pub(crate) fn stated(&self, file: &str) -> Result<Stated, Trouble> {
        let (api, url) = (self.api.clone(), self.url(file));
        let metadata = watch(self.patience, |_| (), move |_| api.metadata(&url))?;
        let etag = metadata.etag().to_owned();
        let checksum = Checksum::parse(&etag)
            .ok_or_else(|| Trouble::Answer(format!("its ETag {etag:?} is not a checksum")))?;
        Ok(Stated { etag, note: Note { bytes: metadata.size() as u64, checksum } })
    }

    /// Downloads a file, or the rest of it, into the cache. The content is not checked yet.
    pub(crate) fn download(
        &self,
        file: &str,
        stated: &Stated,
        mut progress: impl FnMut(u64),
    ) -> Result<PathBuf, Trouble> {
        let bytes = stated.note.bytes;
        let cache = self.cache.repo(self.repo.clone());
        let blob = cache.blob_path(&stated.etag);
        let part = blob.with_extension("part");
        // Killed between the last byte and the rename: hf-hub would request bytes past the end.
        if length(&part) == Some(bytes) {
            tra_disk::rename(&part, &blob)?;
        }
        if length(&part).is_some_and(|found| found > bytes) {
            tra_disk::remove_file(&part)?;
        }
        // Killed between hf-hub's rename and ours.
        if length(&blob) == Some(bytes) {
            progress(bytes);
            return Ok(blob);
        }
        if length(&blob).is_some() {
            tra_disk::remove_file(&blob)?;
        }
        let (repo, name) = (self.api.repo(self.repo.clone()), file.to_owned());
        let outcome = watch(self.patience, progress, move |reporter| {
            repo.download_with_progress(&name, reporter)
        });
        match (outcome, length(&blob)) {
            // hf-hub mistakes the end of a connection for the end of the file.
            (_, Some(found)) if found < bytes => {
                tra_disk::rename(&blob, &part)?;
                Err(Trouble::Cut("connection closed".into()))
            }
            // Its last step, a link to the blob, fails on file systems without links. It is not needed.
            (Ok(_) | Err(Trouble::Api(ApiError::IoError(_))), Some(_)) => Ok(blob),
            (Ok(_), None) => Err(Trouble::Answer("its ETag changed during the download".into())),
            (Err(Trouble::Silent(patience)), _) => {
                Err(Trouble::Cut(format!("server silent for {patience:?}")))
            }
            (Err(trouble), _) => Err(trouble),
        }
    }
}

fn length(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|found| found.len())
}
