//! A hub on 127.0.0.1 that speaks as much HTTP as hf-hub asks for, and can misbehave.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The revision all files are at.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Name of the listing among the faults.
pub const LISTING: &str = "listing";

/// How to answer a request for a file, or for the listing.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Close the connection after this many bytes of the file.
    Cut(usize),
    /// The same, without a Content-Length.
    CutUnsized(usize),
    /// Send nothing after this many bytes until the fault is removed.
    Stall(usize),
    /// Change the byte at this place.
    Corrupt(usize),
    /// Answer with this status.
    Status(u16),
    /// State this ETag instead.
    Etag(&'static str),
    /// Send this instead.
    Text(&'static str),
}

/// A request for content that was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    pub file: String,
    /// First byte asked for.
    pub from: usize,
    pub bytes: usize,
}

struct Served {
    content: Vec<u8>,
    large: bool,
}

struct State {
    repository: &'static str,
    files: BTreeMap<String, Served>,
    faults: BTreeMap<String, Fault>,
    sent: Vec<Sent>,
    requests: usize,
}

/// The hub; its threads end with the tests.
pub struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub fn start(repository: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            repository,
            files: BTreeMap::new(),
            faults: BTreeMap::new(),
            sent: Vec::new(),
            requests: 0,
        }));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                // A client that hangs up is part of the tests.
                thread::spawn(move || {
                    drop(Answer { port, state: &shared }.answer(stream.unwrap()))
                });
            }
        });
        Self { port, state }
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn add(&self, file: &str, bytes: usize, large: bool) {
        let content = (0..bytes).map(|i| (i * i / 7 + i + file.len()) as u8).collect();
        self.state().files.insert(file.into(), Served { content, large });
    }

    /// A file in large file storage.
    pub fn large(&self, file: &str, bytes: usize) {
        self.add(file, bytes, true);
    }

    /// A file in git.
    pub fn small(&self, file: &str, bytes: usize) {
        self.add(file, bytes, false);
    }

    pub fn fault(&self, file: &str, fault: Fault) {
        self.state().faults.insert(file.into(), fault);
    }

    pub fn mend(&self) {
        self.state().faults.clear();
    }

    pub fn content(&self, file: &str) -> Vec<u8> {
        self.state().files[file].content.clone()
    }

    pub fn checksum(&self, file: &str) -> String {
        checksum(&self.state().files[file])
    }

    /// The content sent since the last call, without the single bytes that only ask for the length.
    pub fn sent(&self) -> Vec<Sent> {
        std::mem::take(&mut self.state().sent)
    }

    /// All requests so far.
    pub fn requests(&self) -> usize {
        self.state().requests
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn checksum(file: &Served) -> String {
    if file.large {
        return hex(&Sha256::digest(&file.content));
    }
    let blob = [format!("blob {}\0", file.content.len()).as_bytes(), &file.content].concat();
    hex(&Sha1::digest(blob))
}

struct Answer<'a> {
    port: u16,
    state: &'a Mutex<State>,
}

impl Answer<'_> {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().unwrap()?;
        let mut range = None;
        for line in lines {
            let line = line?.to_lowercase();
            if let Some(asked) = line.strip_prefix("range: bytes=") {
                let (from, to) = asked.split_once('-').unwrap();
                range = Some((from.parse::<usize>().unwrap(), to.parse::<usize>().ok()));
            }
            if line.is_empty() {
                break;
            }
        }
        let path = request.strip_prefix("GET ").unwrap().split(' ').next().unwrap();
        let mut state = self.state.lock().unwrap();
        state.requests += 1;
        let repository = state.repository;
        let stored = format!("/api/resolve-cache/datasets/{repository}/{COMMIT}/");
        if path == format!("/api/datasets/{repository}/revision/main") {
            self.listing(state, &mut stream)
        } else if let Some(file) =
            path.strip_prefix(&format!("/datasets/{repository}/resolve/{COMMIT}/"))
        {
            self.resolve(&state, file, &stored, &mut stream)
        } else if let Some(file) = path.strip_prefix("/cdn/").or_else(|| path.strip_prefix(&stored))
        {
            let file = file.to_owned();
            self.content(state, &file, range, &mut stream)
        } else {
            status(&mut stream, 404)
        }
    }

    fn listing(&self, state: MutexGuard<State>, out: &mut TcpStream) -> std::io::Result<()> {
        let files = state.files.keys().map(|file| format!(r#"{{"rfilename":"{file}"}}"#));
        let files = files.collect::<Vec<_>>().join(",");
        let mut body = format!(r#"{{"sha":"{COMMIT}","private":false,"siblings":[{files}]}}"#);
        match state.faults.get(LISTING) {
            Some(Fault::Status(code)) => return status(out, *code),
            Some(Fault::Text(text)) => body = (*text).into(),
            Some(Fault::Stall(_)) => return self.stall(state, LISTING),
            _ => (),
        }
        write!(out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")?;
        write!(out, "Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    /// Where the content is: large files on another server, small ones on this one.
    fn resolve(
        &self,
        state: &State,
        file: &str,
        stored: &str,
        out: &mut TcpStream,
    ) -> std::io::Result<()> {
        let Some(served) = state.files.get(file) else { return status(out, 404) };
        let mut checksum = checksum(served);
        match state.faults.get(file) {
            Some(Fault::Status(code)) => return status(out, *code),
            Some(Fault::Etag(etag)) => checksum = (*etag).into(),
            _ => (),
        }
        if served.large {
            write!(out, "HTTP/1.1 302 Found\r\nETag: \"of-the-redirection\"\r\n")?;
            write!(out, "X-Linked-Etag: \"{checksum}\"\r\n")?;
            write!(out, "X-Linked-Size: {}\r\n", served.content.len())?;
            write!(out, "Location: http://127.0.0.1:{}/cdn/{file}\r\n", self.port)?;
        } else {
            write!(out, "HTTP/1.1 307 Temporary Redirect\r\nLocation: {stored}{file}\r\n")?;
        }
        write!(out, "X-Repo-Commit: {COMMIT}\r\nAccept-Ranges: bytes\r\n")?;
        write!(out, "Connection: close\r\nContent-Length: 0\r\n\r\n")
    }

    fn content(
        &self,
        mut state: MutexGuard<State>,
        file: &str,
        range: Option<(usize, Option<usize>)>,
        out: &mut TcpStream,
    ) -> std::io::Result<()> {
        let served = &state.files[file];
        let (mut content, length) = (served.content.clone(), served.content.len());
        let (from, to) = range.unwrap_or((0, None));
        let end = to.map_or(length, |to| to + 1);
        if from >= length {
            return status(out, 416);
        }
        let fault = state.faults.get(file).cloned();
        let only_length = to == Some(0);
        let mut stop = end;
        match fault {
            Some(Fault::Cut(at) | Fault::CutUnsized(at) | Fault::Stall(at)) if !only_length => {
                stop = at;
            }
            Some(Fault::Corrupt(at)) => content[at] ^= 1,
            _ => (),
        }
        write!(out, "HTTP/1.1 206 Partial Content\r\nETag: \"{}\"\r\n", checksum(served))?;
        write!(out, "X-Repo-Commit: {COMMIT}\r\nAccept-Ranges: bytes\r\n")?;
        write!(out, "Content-Range: bytes {from}-{}/{length}\r\n", end - 1)?;
        if !matches!(fault, Some(Fault::CutUnsized(_))) {
            write!(out, "Content-Length: {}\r\n", end - from)?;
        }
        write!(out, "Connection: close\r\n\r\n")?;
        out.write_all(&content[from..stop])?;
        if !only_length {
            state.sent.push(Sent { file: file.into(), from, bytes: stop - from });
        }
        match fault {
            Some(Fault::Stall(_)) if !only_length => self.stall(state, file),
            _ => Ok(()),
        }
    }

    /// Keeps the connection open until the fault is removed.
    fn stall(&self, state: MutexGuard<State>, file: &str) -> std::io::Result<()> {
        drop(state);
        while self.state.lock().unwrap().faults.contains_key(file) {
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

fn status(out: &mut TcpStream, code: u16) -> std::io::Result<()> {
    write!(out, "HTTP/1.1 {code} No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
}
