//! One repository of the hub, through hf-hub 0.5.
//!
//! hf-hub writes a file to `blobs/ETAG.part` in its cache and renames it to `blobs/ETAG` when the
//! server has closed the transfer; a `.part` that is there already is continued with a `Range`
//! request. It checks neither length nor content, and trips over some things an interruption leaves
//! behind; [`Hub::download`] sees to these. Its own retries stay off: after a failed request they
//! append to a continued file from its beginning.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, Repo};

use crate::checksum::Checksum;
use crate::notes::Note;
use crate::watch::{Trouble, watch};

/// The variable that names another hub.
const ENDPOINT: &str = "HF_ENDPOINT";

/// A data set's repository.
pub(crate) struct Hub {
    api: Api,
    repo: Repo,
    cache: Cache,
    patience: Duration,
}

/// What the hub says of a file.
pub(crate) struct Stated {
    etag: String,
    pub(crate) note: Note,
}

/// The address to ask: the one given, or the variable's, or the hub's.
pub(crate) fn endpoint(given: Option<&str>) -> String {
    let variable = std::env::var(ENDPOINT).ok().filter(|address| !address.is_empty());
    let address = given.map(str::to_owned).or(variable);
    let address = address.unwrap_or_else(|| "https://huggingface.co".into());
    address.trim_end_matches('/').to_owned()
}

impl Hub {
    /// hf-hub itself looks up the login that `hf auth login` has stored.
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

    /// The revision and all its files. The files are fetched at that revision from then on, so that
    /// they belong together whatever is pushed in between.
    pub(crate) fn list(&mut self) -> Result<(String, Vec<String>), Trouble> {
        let repo = self.api.repo(self.repo.clone());
        let info = watch(self.patience, |_| (), move |_| repo.info())?;
        // It becomes part of paths in the cache.
        if info.sha.is_empty() || !info.sha.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
            return Err(Trouble::Answer(format!("{:?} is no revision", info.sha)));
        }
        let id = self.repo.url().trim_start_matches("datasets/").to_owned();
        self.repo = Repo::with_revision(id, hf_hub::RepoType::Dataset, info.sha.clone());
        Ok((info.sha, info.siblings.into_iter().map(|file| file.rfilename).collect()))
    }

    /// The address of a file.
    pub(crate) fn url(&self, file: &str) -> String {
        self.api.repo(self.repo.clone()).url(file)
    }

    /// Length and checksum of a file. A tag that is no checksum is an error before anything is
    /// downloaded: the file could never be told from a broken one.
    pub(crate) fn stated(&self, file: &str) -> Result<Stated, Trouble> {
        let (api, url) = (self.api.clone(), self.url(file));
        let metadata = watch(self.patience, |_| (), move |_| api.metadata(&url))?;
        let etag = metadata.etag().to_owned();
        let checksum = Checksum::parse(&etag)
            .ok_or_else(|| Trouble::Answer(format!("its ETag {etag:?} is no checksum")))?;
        Ok(Stated { etag, note: Note { bytes: metadata.size() as u64, checksum } })
    }

    /// Downloads a file, or the rest of it, into the cache. The content is yet to be checked.
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
        // Killed between the last byte and the renaming: hf-hub would ask for what is past the end.
        if length(&part) == Some(bytes) {
            tra_disk::rename(&part, &blob)?;
        }
        if length(&part).is_some_and(|found| found > bytes) {
            tra_disk::remove_file(&part)?;
        }
        // Killed between hf-hub's renaming and ours.
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
            // hf-hub takes the end of a connection for the end of the file.
            (_, Some(found)) if found < bytes => {
                tra_disk::rename(&blob, &part)?;
                Err(Trouble::Cut("connection closed".into()))
            }
            // Its last step, a link to the blob, fails on file systems without links: no harm.
            (Ok(_) | Err(Trouble::Api(ApiError::IoError(_))), Some(_)) => Ok(blob),
            (Ok(_), None) => Err(Trouble::Answer("its ETag changed meanwhile".into())),
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
