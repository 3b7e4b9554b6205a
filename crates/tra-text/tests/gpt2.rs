//! GPT-2's tokens against those of the published implementation in Python, recorded in `gpt2.json`
//! (which says with what).

use proptest::prelude::*;
use tra_text::Tokenizer;

#[test]
fn hard_strings_have_the_published_tokens_and_come_back() {
    let recorded: serde_json::Value = serde_json::from_str(include_str!("gpt2.json")).unwrap();
    let tokenizer = Tokenizer::open("gpt2").unwrap();
    let cases = recorded["cases"].as_array().unwrap();
    assert!(cases.len() > 40);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let expected: Vec<u32> =
            case["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect();
        let tokens = tokenizer.encode(text).unwrap();
        assert_eq!(tokens, expected, "{text:?}");
        assert_eq!(tokenizer.decode(&tokens), text.as_bytes());
    }
}

proptest! {
    #[test]
    fn any_text_comes_back(text in "\\PC*|[ \\t\\r\\n'a-c1]*") {
        let tokenizer = Tokenizer::open("gpt2").unwrap();
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), text.as_bytes());
    }
}
