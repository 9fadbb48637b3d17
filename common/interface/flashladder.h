/* FlashLadder as a C library: what ctypes, a Python package or another language calls. libflashladder.so has all stages
 * and exports these functions alone.
 *
 * A function that returns an error returns null if there is none, else one line that says what is wrong (the emulator's
 * report has more); the text lives until the thread's next call that fails. Nothing is thrown across this boundary.
 * Nothing allocates device memory or waits for the device, where it does not say so. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A stage and its problem; problem.h says what the numbers mean. Tensors are device memory of the current device, each
 * from a multiple of 16 bytes on. Their strides count elements, to the next batch, head and row; all 0 means
 * contiguous. A stage without "strides" takes contiguous tensors alone, one with them multiples of 16 bytes. */
typedef struct FlashLadderForward {
    const char* stage; /* "04-tensor-cores" */
    const char* dtype; /* "f32", "bf16" or "f16": of Q, K, V and O */
    int batch, heads, kv_heads, n_q, n_k, head_dim;
    int causal;    /* 0 or 1; bottom-right aligned */
    float scale;   /* of the scores; 1 / sqrt(head_dim) as a rule */
    const void* Q; /* (batch, heads, n_q, head_dim) */
    const void* K; /* (batch, kv_heads, n_k, head_dim) */
    const void* V; /* (batch, kv_heads, n_k, head_dim) */
    void* O;       /* (batch, heads, n_q, head_dim) */
    float* lse;    /* (batch, heads, n_q), natural log; null where it is not wanted */
    void* scratch; /* flashladder_scratch_bytes of it, 256-byte aligned; may be null if that is 0 */
    void* stream;  /* cudaStream_t; null is the default stream */
    long long Q_strides[3], K_strides[3], V_strides[3], O_strides[3];
} FlashLadderForward;

/* The stages and what they can do, as JSON that lives as long as the library: [{"stage": "04-tensor-cores",
 * "head_dims": [64, 128], "dtypes": ["bf16", "f16"], "causal": true, "lse": true, "grouped_query": true,
 * "strides": false, "compute_capability": 0, "max_batch_heads": 0, "max_n_k": 0, "variants": [{"variant": "split-K",
 * "head_dims": [64, 128], "lse": false}, ...]}, ...]; a maximum of 0 is none, but batch and heads are at most 65535 each.
 * compute_capability is what the GPU must have, 90 for 9.0. A variant is a stage too, by the name
 * "04-tensor-cores/split-K"; variants take bf16, and some are not causal. */
const char* flashladder_stages(const char** json);

/* How much scratch a problem needs, in bytes. Of the pointers only `lse` is looked at, and whether it is null; of the
 * strides none. An error if the stage does not support the problem, or needs a newer GPU than the current one. */
const char* flashladder_scratch_bytes(const FlashLadderForward* problem, size_t* bytes);

/* Launches the stage on `stream`; O and lse are there once the stream has got so far. May be captured into a graph
 * after a first launch outside. */
const char* flashladder_forward(const FlashLadderForward* problem);

/* The same for tensors in the host's memory: copies them to device memory, gaps between rows too, and O and lse back.
 * Waits. Takes no scratch: it allocates what the stage needs. */
const char* flashladder_forward_from_host(const FlashLadderForward* problem);

/* The gradients of sum(O dO) for a given dO, by a stage of the way back. Q, K, V, causal and scale are those of a forward
 * pass, O and lse what it has left. Memory and strides are as in FlashLadderForward, so a stage without "strides" takes
 * contiguous tensors alone. Where heads share a head of K and V, its gradients are the sums of theirs. */
typedef struct FlashLadderBackward {
    const char* stage; /* "17-key-blocks" */
    const char* dtype; /* of all tensors but lse */
    int batch, heads, kv_heads, n_q, n_k, head_dim;
    int causal;
    float scale;
    const void* Q;    /* (batch, heads, n_q, head_dim) */
    const void* K;    /* (batch, kv_heads, n_k, head_dim) */
    const void* V;    /* (batch, kv_heads, n_k, head_dim) */
    const void* O;    /* (batch, heads, n_q, head_dim) */
    const void* dO;   /* (batch, heads, n_q, head_dim) */
    const float* lse; /* (batch, heads, n_q), contiguous; -infinity of a query that sees no key */
    void* dQ;         /* (batch, heads, n_q, head_dim) */
    void* dK;         /* (batch, kv_heads, n_k, head_dim) */
    void* dV;         /* (batch, kv_heads, n_k, head_dim) */
    void* scratch;    /* flashladder_backward_scratch_bytes of it, 256-byte aligned; may be null if that is 0 */
    void* stream;
    long long Q_strides[3], K_strides[3], V_strides[3], O_strides[3], dO_strides[3];
    long long dQ_strides[3], dK_strides[3], dV_strides[3];
} FlashLadderBackward;

/* The stages of the way back, described as flashladder_stages describes those of the forward pass. Instead of "lse" they
 * have "deterministic": whether each launch gives the same bits. Of the others dQ may differ in the last places. */
const char* flashladder_backward_stages(const char** json);

/* As their namesakes of the forward pass; the pointers are not looked at for the scratch. */
const char* flashladder_backward_scratch_bytes(const FlashLadderBackward* problem, size_t* bytes);
const char* flashladder_backward(const FlashLadderBackward* problem);
const char* flashladder_backward_from_host(const FlashLadderBackward* problem);

/* Attention for sequences of unlike length, whose keys and values lie in pages: key j of sequence b is row j % page_size of
 * page block_table[b][j / page_size]. Memory and strides are as in FlashLadderForward; those of K and V count from page to
 * page, head and row, so that a pool of (pages, page_size, kv_heads, head_dim) is a matter of strides. */
typedef struct FlashLadderPaged {
    const char* stage; /* "27b-paged" */
    const char* dtype;
    int batch, heads, kv_heads, n_q, n_k, head_dim; /* batch: sequences; n_k: the most keys that one may have */
    int causal; /* query i of a sequence sees the keys up to its length - n_q + i */
    float scale;
    int pages, page_size;   /* of the pool; a page has page_size keys, a multiple of 8 */
    int pages_of_sequence;  /* numbers of a row of the table, enough for n_k keys */
    const void* Q;          /* (batch, heads, n_q, head_dim) */
    const void* K;          /* (pages, kv_heads, page_size, head_dim) */
    const void* V;          /* (pages, kv_heads, page_size, head_dim) */
    const int* block_table; /* (batch, pages_of_sequence), contiguous; behind a sequence's last page anything */
    const int* lengths;     /* (batch), the keys of each sequence, 0 to n_k */
    void* O;                /* (batch, heads, n_q, head_dim) */
    float* lse;             /* (batch, heads, n_q), natural log; null where it is not wanted */
    void* scratch;          /* flashladder_paged_scratch_bytes of it, 256-byte aligned; may be null if that is 0 */
    void* stream;
    long long Q_strides[3], K_strides[3], V_strides[3], O_strides[3];
} FlashLadderPaged;

/* As their namesakes without pages. Table and lengths are in device memory, where nobody looks whether they are good ones:
 * only the third looks, as it has them from the host. */
const char* flashladder_paged_scratch_bytes(const FlashLadderPaged* problem, size_t* bytes);
const char* flashladder_paged_attention(const FlashLadderPaged* problem);
const char* flashladder_paged_attention_from_host(const FlashLadderPaged* problem);

/* Attention for sequences of unlike length, packed row behind row: sequence b has the rows of Q from cu_seqlens_q[b] on up
 * to, but not with, cu_seqlens_q[b + 1], and those of K and V by cu_seqlens_k. Memory is as in FlashLadderForward. */
typedef struct FlashLadderVarlen {
    const char* stage; /* "26b-varlen" */
    const char* dtype;
    int sequences, heads, kv_heads, total_q, total_k, head_dim; /* totals: rows of all sequences, which may be 0 */
    int value_dim; /* columns of V and O; 0: head_dim */
    int causal; /* query i of a sequence sees its keys up to i + n_k - n_q */
    float scale;
    const void* Q;           /* (total_q, heads, head_dim) */
    const void* K;           /* (total_k, kv_heads, head_dim) */
    const void* V;           /* (total_k, kv_heads, value_dim) */
    const int* cu_seqlens_q; /* (sequences + 1): 0 first, never less than the one before, total_q last */
    const int* cu_seqlens_k; /* (sequences + 1): the same up to total_k */
    void* O;                 /* (total_q, heads, value_dim) */
    float* lse;              /* (heads, total_q), natural log; null where it is not wanted */
    void* scratch;           /* flashladder_varlen_scratch_bytes of it, 256-byte aligned */
    void* stream;
    long long Q_strides[2], K_strides[2], V_strides[2], O_strides[2]; /* to the next row, head; 0, 0: contiguous */
} FlashLadderVarlen;

/* As their namesakes of paged attention: only the third looks whether the lists are good ones. */
const char* flashladder_varlen_scratch_bytes(const FlashLadderVarlen* problem, size_t* bytes);
const char* flashladder_varlen_attention(const FlashLadderVarlen* problem);
const char* flashladder_varlen_attention_from_host(const FlashLadderVarlen* problem);

/* Attention in which blocks of 128 queries see the blocks of 128 keys that their lists name. List r, of block r % T_r of head
 * r / T_r, is blocks[first[r]] to blocks[first[r + 1] - 1], ascending; T_r = ceil(n_q / 128). If causal, a query sees of
 * these the keys up to its own place alone. One that sees no key has O = 0 and lse = -infinity. Memory and strides are as in
 * FlashLadderForward. */
typedef struct FlashLadderBlockSparse {
    const char* stage; /* "26-block-lists" */
    const char* dtype;
    int batch, heads, kv_heads, n_q, n_k, head_dim;
    int causal;
    float scale;
    int list_heads;    /* 1: all heads share their lists; else heads. All batches share them in any case */
    const void* Q;     /* (batch, heads, n_q, head_dim) */
    const void* K;     /* (batch, kv_heads, n_k, head_dim) */
    const void* V;     /* (batch, kv_heads, n_k, head_dim) */
    const int* first;  /* (list_heads * T_r + 1), from 0 on */
    const int* blocks; /* of all lists; may be null from the host, if all are empty */
    void* O;           /* (batch, heads, n_q, head_dim) */
    float* lse;        /* (batch, heads, n_q), natural log; null where it is not wanted */
    void* scratch;     /* flashladder_block_sparse_scratch_bytes of it, 256-byte aligned */
    void* stream;
    long long Q_strides[3], K_strides[3], V_strides[3], O_strides[3];
} FlashLadderBlockSparse;

/* As their namesakes without lists. Lists are in device memory, where nobody looks whether they are good ones: only the
 * third looks, as it has them from the host. */
const char* flashladder_block_sparse_scratch_bytes(const FlashLadderBlockSparse* problem, size_t* bytes);
const char* flashladder_block_sparse_attention(const FlashLadderBlockSparse* problem);
const char* flashladder_block_sparse_attention_from_host(const FlashLadderBlockSparse* problem);

/* The attention of one sequence to itself, spread over `ranks` devices, of which one may have several: rank g has n / ranks
 * of its rows. If causal, the sequence has 2 ranks chunks, and rank g has chunks g and 2 ranks - 1 - g, one behind the
 * other; else the g-th part. Tensors are contiguous; arrays have an entry a rank. */
typedef struct FlashLadderRing {
    const char* stage; /* "27c-ring" */
    const char* dtype;
    int batch, heads, kv_heads, n, head_dim; /* n: of the whole sequence, a multiple of ranks, if causal of 2 ranks */
    int causal;
    float scale;
    int ranks;
    const int* devices;
    const void* const* Q;  /* (batch, heads, n / ranks, head_dim) */
    const void* const* K;  /* (batch, kv_heads, n / ranks, head_dim) */
    const void* const* V;
    void* const* O;        /* (batch, heads, n / ranks, head_dim) */
    float* const* lse;     /* (batch, heads, n / ranks), natural log; null where it is not wanted */
    void* const* scratch;  /* flashladder_ring_scratch_bytes of it each, 256-byte aligned */
    void* const* streams;  /* each of its device: what comes there before is waited for, and what comes there later waits */
} FlashLadderRing;

/* As their namesakes without a ring. */
const char* flashladder_ring_scratch_bytes(const FlashLadderRing* problem, size_t* bytes);
const char* flashladder_ring_attention(const FlashLadderRing* problem);

/* One round of one rank, for who sends K and V around in another way: with those of rank - round. Rounds are called one after
 * the other, from 0 to ranks - 1, with the same O, lse and scratch; O and lse are complete behind the last one. */
typedef struct FlashLadderRingRound {
    const char* stage;
    const char* dtype;
    int batch, heads, kv_heads, n, head_dim; /* n: of the whole sequence */
    int causal;
    float scale;
    int ranks, rank, round;
    const void* Q; /* shapes are those of a rank above */
    const void* K;
    const void* V;
    void* O;
    float* lse;
    void* scratch; /* flashladder_ring_round_scratch_bytes of it, which nobody else writes between rounds */
    void* stream;
} FlashLadderRingRound;

const char* flashladder_ring_round_scratch_bytes(const FlashLadderRingRound* problem, size_t* bytes);
const char* flashladder_ring_round(const FlashLadderRingRound* problem);
const char* flashladder_ring_round_from_host(const FlashLadderRingRound* problem);

/* Of the thread's last error: 1 if a problem was refused, and nothing was launched; 0 if CUDA or a kernel failed. */
int flashladder_refused(void);

/* "gpu", or "cpu" for the emulator, whose device memory is neither the host's nor a GPU's. It runs one kernel at a
 * time: two threads must not call it at once. */
const char* flashladder_backend(void);

/* C = A B for matrices of bf16, row after row: (M, N) = (M, K) (K, N); sizes are multiples of 8, addresses of 16 bytes.
 * `variant` is one of those that flashladder_gemm_variants gives as a JSON array; "" is the kernel itself. `scratch` is a
 * word of device memory, which may be null for all variants but "dynamic". Needs a GPU of compute capability 9.0. May be
 * captured into a graph after a first launch outside. */
const char* flashladder_gemm(const char* variant, int M, int N, int K, const void* A, const void* B, void* C,
                             void* scratch, void* stream);
const char* flashladder_gemm_variants(const char** json);

#ifdef __cplusplus
}
#endif
