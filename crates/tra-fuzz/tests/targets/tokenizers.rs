//! A `tokenizer.json`.

use tra_fuzz::{Target, fuzz};
use tra_text::Tokenizer;

use super::text;

const WORDS: &[&str] = &[
    "\"type\"",
    "BPE",
    "WordLevel",
    "WordPiece",
    "Unigram",
    "ByteLevel",
    "Metaspace",
    "Whitespace",
    "Split",
    "Sequence",
    "Precompiled",
    "Replace",
    "Prepend",
    "Strip",
    "NFKC",
    "BertNormalizer",
    "TemplateProcessing",
    "ByteFallback",
    "\"vocab\"",
    "\"merges\"",
    "\"unk_token\"",
    "\"unk_id\"",
    "\"regex\"",
    "\"content\"",
    "\"Regex\"",
    "\"String\"",
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "(a*)*b",
    "\\p{L}+",
    "\\\\s+",
    "\"added_tokens\"",
    "\"single_word\"",
    "\"lstrip\"",
    "\"stride\"",
    "\"max_length\"",
    "\"truncation\"",
    "\"padding\"",
    "\"behavior\"",
    "Removed",
    "Isolated",
    "\"dropout\"",
    "\u{2581}",
    "\"continuing_subword_prefix\"",
    "\"end_of_word_suffix\"",
    "\"\"",
    "\"ignore_merges\"",
];

fn file(normalizer: &str, split: &str, after: &str, decoder: &str, model: &str) -> Vec<u8> {
    format!(
        r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{{"id":0,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}}],"normalizer":{normalizer},"pre_tokenizer":{split},"post_processor":{after},"decoder":{decoder},"model":{model}}}"#
    )
    .into()
}

fn corpus() -> Vec<Vec<u8>> {
    let words = r#"{"<s>":0,"a":1,"b":2,"c":3,"ab":4,"abc":5,"▁":6,"d":7}"#;
    let pairs = format!(
        r#"{{"type":"BPE","dropout":null,"unk_token":"<s>","continuing_subword_prefix":"","end_of_word_suffix":"","fuse_unk":true,"byte_fallback":true,"ignore_merges":false,"vocab":{words},"merges":["a b","ab c"]}}"#
    );
    let level = format!(r#"{{"type":"WordLevel","vocab":{words},"unk_token":"<s>"}}"#);
    let piece = format!(
        r###"{{"type":"WordPiece","unk_token":"<s>","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{words}}}"###
    );
    let unigram = r#"{"type":"Unigram","unk_id":0,"byte_fallback":false,"vocab":[["<s>",0.0],["a",-1.5],["b",-2.0],["ab",-1.0],["▁",-3.0]]}"#;
    let template = r#"{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}}"#;
    let llama = r#"{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"},{"type":"NFKC"},{"type":"Strip","strip_left":true,"strip_right":true}]}"#;
    let bert = r#"{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true}"#;
    let precompiled = r#"{"type":"Precompiled","precompiled_charsmap":"CAAAAAAAAAAAAAAAYQA="}"#;
    let space = r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}"#;
    let split = r#"{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+|\\s+"},"behavior":"Isolated","invert":false},{"type":"Digits","individual_digits":true}]}"#;
    let bytes =
        r#"{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}"#;
    let decoder = r#"{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}"#;
    let prefix = r###"{"type":"WordPiece","prefix":"##","cleanup":true}"###;
    let cut = r#"{"direction":"Right","max_length":4,"strategy":"LongestFirst","stride":1}"#;
    let cut = String::from_utf8(file(llama, split, "null", decoder, &pairs)).unwrap().replacen(
        "\"truncation\":null",
        &format!("\"truncation\":{cut}"),
        1,
    );
    vec![
        file(llama, "null", template, decoder, &pairs),
        file(bert, r#"{"type":"BertPreTokenizer"}"#, template, prefix, &piece),
        file("null", r#"{"type":"Whitespace"}"#, "null", "null", &level),
        file(precompiled, space, "null", space, unigram),
        file("null", bytes, bytes, bytes, &pairs),
        cut.into(),
    ]
}

#[test]
fn tokenizer() {
    let target =
        Target { name: "tokenizer", file: "tokenizer.json", corpus: corpus(), words: WORDS };
    fuzz(&target, |path| {
        let tokenizer = text(Tokenizer::open(path.to_str().unwrap()))?;
        let tokens = text(tokenizer.encode("abc  cab <s>\n12 戦場 é\u{301}.abd"))?;
        tokenizer.decode(&tokens);
        tokenizer.decode(&[0, u32::MAX]);
        Ok(())
    });
}
