//! Run directories as users name them: a folder of runs is easily taken for one of them.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use tra_lab::run_dir::RunDir;

/// Runs that an error lists.
const LISTED: usize = 3;
/// How far below a folder runs are looked for: `runs/reproduce/flipflop-quick/tra-s1`.
const DEPTH: usize = 3;

/// Opens a run directory. The error for a folder of runs says which runs are in it.
pub fn open(path: &Path) -> Result<RunDir> {
    check(path)?;
    Ok(RunDir::open(path)?)
}

/// Rejects a folder that is not a run but contains some.
pub fn check(path: &Path) -> Result<()> {
    if RunDir::exists(path)? {
        return Ok(());
    }
    let mut runs = Vec::new();
    runs_below(path, DEPTH, &mut runs);
    if runs.is_empty() {
        return Ok(());
    }
    let listed = runs.iter().take(LISTED).map(|run| run.display().to_string());
    let listed = listed.collect::<Vec<_>>().join(", ");
    let rest = match runs.len().saturating_sub(LISTED) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    let what = if runs.len() == 1 { "a run" } else { "runs" };
    bail!("{}: not a run directory, but it contains {what}: {listed}{rest}", path.display())
}

/// Replaces every folder of runs by the runs directly inside it, sorted by name. Each run is listed once.
pub fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = Vec::new();
    for path in paths {
        let mut runs = Vec::new();
        if !RunDir::exists(path)? {
            runs_below(path, 1, &mut runs);
        }
        if runs.is_empty() {
            check(path)?;
            runs.push(path.clone());
        }
        runs.retain(|run| !all.contains(run));
        all.extend(runs);
    }
    Ok(all)
}

/// Adds the runs up to `depth` levels below a folder. What cannot be read is left out.
fn runs_below(path: &Path, depth: usize, runs: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let hidden = |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    let folders = entries.filter(|entry| !hidden(entry)).map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    folders.sort();
    for folder in folders {
        match RunDir::exists(&folder) {
            Ok(true) => runs.push(folder),
            _ if depth > 1 => runs_below(&folder, depth - 1, runs),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with runs at these places.
    fn folder(places: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for place in places {
            let run = folder.path().join(place);
            std::fs::create_dir_all(&run).unwrap();
            std::fs::write(run.join("config.toml"), "").unwrap();
        }
        folder
    }

    fn error(path: &Path) -> String {
        open(path).unwrap_err().to_string().replace(path.to_str().unwrap(), "DIR")
    }

    #[test]
    fn the_runs_of_a_folder_are_named() {
        let two = folder(&["b", "a", ".hidden"]);
        assert_eq!(
            error(two.path()),
            "DIR: not a run directory, but it contains runs: DIR/a, DIR/b"
        );
        let one = folder(&["x/y/z"]);
        assert!(error(one.path()).ends_with("but it contains a run: DIR/x/y/z"));
        let many = folder(&["1", "2", "3", "4", "5"]);
        assert!(error(many.path()).ends_with("DIR/1, DIR/2, DIR/3 and 2 more"));
        let none = folder(&["w/x/y/z"]);
        assert_eq!(error(none.path()), "DIR: not a run directory: config.toml is missing");
        assert!(open(&two.path().join("a")).is_ok());
    }

    #[test]
    fn folders_expand_to_the_runs_directly_inside() {
        let (runs, deep) = (folder(&["b", "a", "c/d"]), folder(&["x/y"]));
        let path = |name: &str| runs.path().join(name);
        let given = [path("b"), runs.path().to_path_buf()];
        assert_eq!(expand(&given).unwrap(), [path("b"), path("a")]);
        let error = expand(&[deep.path().into()]).unwrap_err().to_string();
        assert!(error.contains("it contains a run: "), "{error}");
        // What is not there is left to whoever opens it.
        let missing = path("missing");
        assert_eq!(expand(std::slice::from_ref(&missing)).unwrap(), [missing]);
    }
}
