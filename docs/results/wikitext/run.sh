#!/usr/bin/env bash
# Repeats docs/results/wikitext: the same decoder with six mechanisms, trained on WikiText-2
# at window 128 on the same batches, then perplexity at windows up to 4,096.
#   docs/results/wikitext/run.sh DATA OUT
# DATA holds wikitext2.{train,valid,test}.tokens; TRA is the program, by default `tra`.
set -euo pipefail
DATA=$1 OUT=$2 TRA=${TRA:-tra}
mkdir -p "$OUT"

$TRA data tokenizer "$DATA/wikitext2.train.tokens" --vocab 4096 --out "$OUT/tokenizer.json"
for attention in tra rope alibi nope fox cope; do
  $TRA train --text "$DATA/wikitext2.train.tokens" --valid "$DATA/wikitext2.valid.tokens" \
    --tokenizer "$OUT/tokenizer.json" --attention $attention --size mini --length 128 --batch 32 \
    --steps 600 --lr 2e-3 --eval-every 100 --eval-sequences 512 --seed 1 --out "$OUT/$attention"
  $TRA perplexity "$OUT/$attention" --text "$DATA/wikitext2.test.tokens" \
    --windows 128,256,512,1024,2048,4096 --protocol chunk,sliding --limit 65537
done
$TRA report "$OUT"/{tra,rope,alibi,nope,fox,cope} --title "WikiText-2, trained at window 128" \
  --out "$OUT/report.html"
