//! Rewrites every generated region of the documents.

use std::process::ExitCode;

use tra_docs::data::Data;
use tra_docs::{documents, prose, render, root};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> std::io::Result<bool> {
    let (root, mut fine) = (root().canonicalize()?, true);
    let data = Data::new(&root);
    for path in documents(&root)? {
        let name = path.strip_prefix(&root).unwrap_or(&path).display();
        let text = std::fs::read_to_string(&path)?;
        match render(&text, &data) {
            Err(problem) => {
                eprintln!("{name}:{problem}");
                fine = false;
            }
            Ok(rendered) if rendered != text => {
                std::fs::write(&path, rendered)?;
                println!("{name}: written");
            }
            Ok(_) => {}
        }
        for problem in prose::typed_figures(&text) {
            eprintln!("{name}:{problem}");
            fine = false;
        }
    }
    Ok(fine)
}
