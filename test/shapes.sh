#!/bin/sh
# Shapes that the zoo does not have: wide vocabularies, large heads, many experts, RWKV's ranks.
# `make verify-shapes` runs all of them. Sanitizers are slow: one small shape has to do there.
case $1 in
*san) tools/verify-shapes "$1" SmolLM2-135M:q4_k ;;
*) tools/verify-shapes "$1" Qwen2.5-0.5B:q4_k RWKV-7-0.4B:q8_0 Qwen3-30B-A3B:q4_k GLM-4.7-Flash:q8_0 ;;
esac
