// Paged attention: a step of decoding for sequences of unlike length, whose keys and values lie in pages.
//
//   O = softmax(scale * Q K^T) V,   LSE as in attention (operations/attention/problem.h), for each sequence with its
//   own N_k
//
// K and V are pools of pages. A page has page_size rows of each kv head. Row b of the block table says which pages the
// keys of sequence b are in: key j is row j % page_size of page block_table[b][j / page_size]. The queries are the last
// ones of their sequence: if causal, query i sees the keys up to length - n_q + i. A query that sees no key has O = 0
// and LSE = -infinity.
//
// What is in no sequence reaches nobody: a page that no used entry of the table names, rows behind the last key of a
// page, and entries behind a sequence's last page, which may be any number. Sequences may share pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "operations/attention/problem.h"

namespace flashladder::paged_attention {

/// batch: sequences. n_k: the most keys that a sequence may have.
using attention::AttentionShape;

/// Where K and V lie.
struct Pool {
    int page_size = 64;         // keys of a page
    int pages = 1;              // in the pool
    int pages_of_sequence = 1;  // entries of a row of the block table: enough for n_k keys

    bool operator==(const Pool&) const = default;
};

/// Which keys each sequence has, and where.
struct Sequences {
    std::vector<int> block_table;  // (batch, pages_of_sequence)
    std::vector<int> lengths;      // (batch), each 0 to n_k

    bool operator==(const Sequences&) const = default;
};

/// Entries of a row of the table that are used.
constexpr int pages_of(int length, int page_size) { return (length + page_size - 1) / page_size; }

/// n_k for each sequence, or drawn from 0 to n_k.
std::vector<int> draw_lengths(const AttentionShape& shape, bool ragged, std::uint64_t seed);
/// The same, and pages of all sequences in an order that is drawn; behind them numbers that nobody should follow.
/// Throws std::invalid_argument if the pool has too few pages for it.
Sequences draw_sequences(const AttentionShape& shape, const Pool& pool, bool ragged, std::uint64_t seed);

/// Scores that are to be computed.
double scores(const AttentionShape& shape, const std::vector<int>& lengths);

/// What a stage gets. shape, Q, O, lse, scale, scratch and stream are attention's. K and V are (pages, kv_heads,
/// page_size, head_dim), where `batch` of the strides is that of pages. The table and the lengths are in device memory,
/// where nobody looks whether they are good ones: a length beyond n_k, or a page number that the pool has not, is not
/// noticed.
struct Args : attention::ForwardArgs {
    Pool pool;
    const int* block_table = nullptr;
    const int* lengths = nullptr;
};

}  // namespace flashladder::paged_attention
