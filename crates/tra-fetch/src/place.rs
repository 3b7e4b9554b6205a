//! Downloads the files of a data set and puts them in their places.

use std::fs;
use std::path::{Path, PathBuf};

use crate::asking::Asking;
use crate::hub::Hub;
use crate::notes::Notes;
use crate::scratch::Scratch;
use crate::sets::Set;
use crate::{FetchError, Observer, Request};

/// Puts the files of a data set into a folder and returns their paths, sorted.
///
/// Files that are there already with the right checksum are kept, and an interrupted call is
/// continued. Files of the same name that no earlier call put there are never overwritten.
pub fn get(request: &Request, observer: &mut dyn Observer) -> Result<Vec<PathBuf>, FetchError> {
    let set = Set::by_name(request.name)?;
    let out = request.out;
    let endpoint = request.endpoint.trim_end_matches('/');
    let asking = Asking { set, out, endpoint };
    let mut notes = Notes::open(out, set)?;
    let present = notes.all_present(observer);
    if let Some(paths) = present.map_err(FetchError::io("cannot read", out))? {
        return Ok(paths);
    }

    let scratch = Scratch::open(out)?;
    let page = format!("{endpoint}/datasets/{}", set.repository);
    let failed = |trouble| asking.failed(&page, trouble);
    let mut hub =
        Hub::new(endpoint, set.repository, scratch.folder(), request.patience).map_err(failed)?;
    let (revision, files) = hub.list().map_err(failed)?;
    (notes.revision, notes.complete) = (revision, false);
    let mut names: Vec<&str> = files.iter().filter_map(|file| set.local_name(file)).collect();
    names.sort();
    if names.is_empty() {
        return Err(FetchError::NoFiles { page: set.page(), folder: set.prefix });
    }
    for name in &names {
        Place { asking: &asking, hub: &hub, name }.fill(&mut notes, observer)?;
    }
    notes.finish(&names)?;
    scratch.clear();
    Ok(names.iter().map(|name| out.join(name)).collect())
}

/// A file of the output folder, there or not.
struct Place<'a> {
    asking: &'a Asking<'a>,
    hub: &'a Hub,
    name: &'a str,
}

impl Place<'_> {
    fn fill(&self, notes: &mut Notes, observer: &mut dyn Observer) -> Result<(), FetchError> {
        let (name, path) = (self.name, self.asking.out.join(self.name));
        let file = format!("{}{name}", self.asking.set.prefix);
        let failed = |trouble| self.asking.failed(&self.hub.url(&file), trouble);

        let stated = self.hub.stated(&file).map_err(failed)?;
        let note = &stated.note;
        let fits = note.checksum.fits(&path, note.bytes);
        if fits.map_err(FetchError::io("cannot read", &path))? {
            observer.present(name);
            return notes.add(name, note.clone());
        }
        if fs::symlink_metadata(&path).is_ok() && !notes.has(name) {
            return Err(FetchError::NotOurs { path });
        }
        observer.file(name, note.bytes);
        let blob = self.hub.download(&file, &stated, |done| observer.progress(done));
        let blob = blob.map_err(failed)?;
        let found = note.checksum.of_file(&blob);
        let found = found.map_err(FetchError::io("cannot read", &blob))?;
        if found != note.checksum {
            tra_disk::remove_file(&blob).map_err(FetchError::io("cannot remove", &blob))?;
            return Err(FetchError::Mismatch {
                file: name.into(),
                expected: note.checksum.short().into(),
                found: found.short().into(),
            });
        }
        settle(&blob, &path).map_err(FetchError::io("cannot write", &path))?;
        notes.add(name, note.clone())?;
        observer.finished();
        Ok(())
    }
}

/// Moves a checked file to its place.
fn settle(blob: &Path, path: &Path) -> std::io::Result<()> {
    // Otherwise a power failure could leave the name without the content.
    tra_disk::sync_file(blob)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    tra_disk::create_dir_all(folder)?;
    tra_disk::rename(blob, path)?;
    tra_disk::sync_folder(folder)
}
