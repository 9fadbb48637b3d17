// The module flashladder._core: checks DLPack tensors and hands them to a backend's library, which it opens by its
// path. It knows no kernels, and building it takes no CUDA.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <climits>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "interface/flashladder.h"

namespace nb = nanobind;

namespace {

using Array = nb::ndarray<nb::ro>;
constexpr int alignment = 16;  // bytes: kernels load so many at a time

/// Python's str.format.
template <class... Arguments>
std::string format(const char* pattern, const Arguments&... arguments) {
    return nb::cast<std::string>(nb::str(pattern).format(arguments...));
}

constexpr auto TypeError = nb::exception_type::type_error, ValueError = nb::exception_type::value_error;

template <class... Arguments>
[[noreturn]] void refuse(nb::exception_type type, const char* pattern, const Arguments&... arguments) {
    throw nb::builtin_exception(type, format(pattern, arguments...).c_str());
}

/// "float16", as NumPy and PyTorch spell it.
std::string dtype_text(nb::dlpack::dtype dtype) {
    constexpr const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
    const std::string kind = dtype.code < std::size(kinds) ? kinds[dtype.code] : "unknown";
    return kind == "bool" ? kind : kind + std::to_string(dtype.bits) + (dtype.lanes == 1 ? "" : " vectors");
}

/// "cpu", or "cuda:1"; of others the number that DLPack has for them.
std::string device_text(const Array& array) {
    switch (array.device_type()) {
        case nb::device::cpu::value:
        case nb::device::cuda_host::value:
            return "cpu";
        case nb::device::cuda::value:
        case nb::device::cuda_managed::value:
            return "cuda:" + std::to_string(array.device_id());
        default:
            return "DLPack's device type " + std::to_string(array.device_type());
    }
}

/// A tensor of (batch, heads, n, d), whatever its dtype and device; or one of packed sequences, (rows, heads, d), whose
/// rows may be none: its batch is 1.
struct Tensor {
    Tensor(const char* name, nb::handle object, const char* extents_in_words = "(batch, heads, n, d)",
           bool packed = false)
        : name(name), axes{packed ? -1 : 0, 1, packed ? 0 : 2, packed ? 2 : 3} {
        if (!nb::try_cast(object, array))
            refuse(TypeError, "{} is no tensor that DLPack can pass on (dtype: {})", name,
                   nb::getattr(object, "dtype", nb::str("unknown")));
        dtype = dtype_text(array.dtype()), device = device_text(array);
        nb::list extents;
        for (std::size_t i = 0; i < array.ndim(); ++i) extents.append(array.shape(i));
        const nb::tuple all(extents);
        if (array.ndim() != (packed ? 3 : 4))
            refuse(ValueError, "{} has shape {}, but must have {}", name, all, extents_in_words);
        for (int i = 0; i < 4; ++i) {
            const std::size_t extent = axes[i] < 0 ? 1 : array.shape(std::size_t(axes[i])), least = packed && i == 2 ? 0 : 1;
            if (extent < least || extent > INT_MAX)
                refuse(ValueError, "{} has shape {}: each extent must be from 1 to {}", name, all, INT_MAX);
            shape[i] = static_cast<int>(extent);
        }
    }

    /// Strides to the next batch, head and row, in elements. Those of an extent of 1, where libraries have any number,
    /// are as a contiguous tensor has them, since the C interface takes three times 0 for one. ValueError if the rows
    /// are not contiguous, or share their memory.
    void get_strides(long long (&strides)[3]) const {
        check_rows();
        long long plain = shape[3];
        for (int i = 2; i >= 0; plain *= shape[i--]) strides[i] = shape[i] == 1 ? plain : array.stride(i);
        if (strides[2] == 0) refuse(ValueError, "{} has a stride of 0 from row to row", name);
    }
    /// The same of a packed one: to the next row and head.
    void get_strides(long long (&strides)[2]) const {
        if (shape[2] == 0) return;
        check_rows();
        strides[0] = shape[2] == 1 ? (long long)shape[1] * shape[3] : array.stride(0);
        strides[1] = shape[1] == 1 ? shape[3] : array.stride(1);
        if (strides[0] == 0) refuse(ValueError, "{} has a stride of 0 from row to row", name);
    }
    void check_rows() const {
        if (const auto stride = array.stride(std::size_t(axes[3])); shape[3] > 1 && stride != 1)
            refuse(ValueError, "{} has a stride of {} in its last dimension, but must have 1", name, stride);
        if (reinterpret_cast<std::uintptr_t>(array.data()) % alignment != 0)
            refuse(ValueError, "{} begins at {:#x}, which is no multiple of {} bytes; a copy of it would", name,
                   reinterpret_cast<std::uintptr_t>(array.data()), alignment);
    }

    const char* name;
    Array array;  // keeps the memory
    std::string dtype, device;
    int shape[4];
    const int axes[4];  // of the array, or -1
};

void check_equal(const char* what, const Tensor& t, const auto& value, const Tensor& q, const auto& expected) {
    if (value != expected) refuse(ValueError, "{} has {} {}, but {} has {}", t.name, what, value, q.name, expected);
}

void check_on_the_same(const Tensor& t, const Tensor& q) {
    if (t.dtype != q.dtype) refuse(TypeError, "{} has dtype {}, but q has {}", t.name, t.dtype, q.dtype);
    if (t.device != q.device) refuse(ValueError, "{} is on {}, but q is on {}", t.name, t.device, q.device);
}

/// Of the same shape, too.
void check_like(const Tensor& t, const Tensor& q) {
    check_on_the_same(t, q);
    constexpr const char* names[] = {"batch", "heads:", "n =", "d ="};
    for (int i = 0; i < 4; ++i) check_equal(names[i], t, t.shape[i], q, q.shape[i]);
}

/// What the forward pass has returned for q.
Array lse_of(nb::handle object, const Tensor& q) {
    Array lse;
    if (!nb::try_cast(object, lse)) refuse(TypeError, "lse is no tensor that DLPack can pass on");
    if (dtype_text(lse.dtype()) != "float32")
        refuse(TypeError, "lse has dtype {}, but must have float32", dtype_text(lse.dtype()));
    if (device_text(lse) != q.device) refuse(ValueError, "lse is on {}, but q is on {}", device_text(lse), q.device);
    long long plain = 1;
    bool contiguous = true, right = lse.ndim() == 3;
    for (int i = 2; right && i >= 0; plain *= q.shape[i--]) {
        right = lse.shape(i) == std::size_t(q.shape[i]);
        contiguous &= q.shape[i] == 1 || lse.stride(i) == plain;
    }
    if (!right) refuse(ValueError, "lse does not have q's shape without d, ({}, {}, {})", q.shape[0], q.shape[1], q.shape[2]);
    if (!contiguous) refuse(ValueError, "lse is not contiguous");
    return lse;
}

/// Whole numbers that go with q, contiguous.
Array ints_of(const char* name, nb::handle object, const Tensor& q) {
    Array ints;
    if (!nb::try_cast(object, ints)) refuse(TypeError, "{} is no tensor that DLPack can pass on", name);
    if (dtype_text(ints.dtype()) != "int32")
        refuse(TypeError, "{} has dtype {}, but must have int32", name, dtype_text(ints.dtype()));
    if (device_text(ints) != q.device) refuse(ValueError, "{} is on {}, but q is on {}", name, device_text(ints), q.device);
    for (std::size_t i = 0, plain = 1; i < ints.ndim(); ++i) {
        const std::size_t axis = ints.ndim() - 1 - i;
        if (ints.shape(axis) > 1 && ints.stride(axis) != std::int64_t(plain)) refuse(ValueError, "{} is not contiguous", name);
        plain *= ints.shape(axis);
    }
    return ints;
}

/// Places of first rows, and the number of all.
Array places_of(const char* name, nb::handle object, const Tensor& q) {
    const Array places = ints_of(name, object, q);
    if (places.ndim() != 1 || places.shape(0) < 2 || places.shape(0) > INT_MAX)
        refuse(ValueError, "{} must have one dimension, and a number more than there are sequences", name);
    return places;
}

/// Numbers of sequences of q: (batch, n) of them, or (batch) where n is null.
Array ints_of_sequences(const char* name, nb::handle object, const Tensor& q, int* n) {
    const Array ints = ints_of(name, object, q);
    if (ints.ndim() != (n ? 2 : 1) || ints.shape(0) != std::size_t(q.shape[0]))
        refuse(ValueError, "{} must have {} for q's {} sequences", name, n ? "a row" : "a number", q.shape[0]);
    if (n) *n = static_cast<int>(ints.shape(1));
    return ints;
}

/// libflashladder.so of a backend.
class Library {
public:
    explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), close) {
        if (!handle_) throw std::runtime_error(dlerror());
        backend_ = function<decltype(&flashladder_backend)>("flashladder_backend")();
        refused_ = function<decltype(refused_)>("flashladder_refused");
        scratch_bytes_ = function<decltype(scratch_bytes_)>("flashladder_scratch_bytes");
        forward_ = function<decltype(forward_)>("flashladder_forward");
        forward_from_host_ = function<decltype(forward_from_host_)>("flashladder_forward_from_host");
        backward_scratch_bytes_ = function<decltype(backward_scratch_bytes_)>("flashladder_backward_scratch_bytes");
        backward_ = function<decltype(backward_)>("flashladder_backward");
        backward_from_host_ = function<decltype(backward_from_host_)>("flashladder_backward_from_host");
        paged_scratch_bytes_ = function<decltype(paged_scratch_bytes_)>("flashladder_paged_scratch_bytes");
        paged_ = function<decltype(paged_)>("flashladder_paged_attention");
        paged_from_host_ = function<decltype(paged_from_host_)>("flashladder_paged_attention_from_host");
        varlen_scratch_bytes_ = function<decltype(varlen_scratch_bytes_)>("flashladder_varlen_scratch_bytes");
        varlen_ = function<decltype(varlen_)>("flashladder_varlen_attention");
        varlen_from_host_ = function<decltype(varlen_from_host_)>("flashladder_varlen_attention_from_host");
        lists_scratch_bytes_ = function<decltype(lists_scratch_bytes_)>("flashladder_block_sparse_scratch_bytes");
        lists_ = function<decltype(lists_)>("flashladder_block_sparse_attention");
        lists_from_host_ = function<decltype(lists_from_host_)>("flashladder_block_sparse_attention_from_host");
        round_scratch_bytes_ = function<decltype(round_scratch_bytes_)>("flashladder_ring_round_scratch_bytes");
        round_ = function<decltype(round_)>("flashladder_ring_round");
        round_from_host_ = function<decltype(round_from_host_)>("flashladder_ring_round_from_host");
        const char* json = nullptr;
        check(function<decltype(&flashladder_stages)>("flashladder_stages")(&json));
        stages_ = json;
        check(function<decltype(&flashladder_backward_stages)>("flashladder_backward_stages")(&json));
        backward_stages_ = json;
    }

    const std::string& backend() const { return backend_; }
    const std::string& stages() const { return stages_; }
    const std::string& backward_stages() const { return backward_stages_; }

    void forward(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle out_object,
                 nb::handle lse_object, const std::string& stage, bool causal, std::optional<float> scale,
                 std::uintptr_t stream, nb::object allocate) const {
        const Tensor q("q", q_object), k("k", k_object), v("v", v_object), out("the output", out_object);
        auto p = problem_of<FlashLadderForward>(q, k, v, stage, causal, scale);
        p.stream = reinterpret_cast<void*>(stream);
        p.O = const_cast<void*>(out.array.data());
        finish_and_launch(p, q, k, v, out, lse_object, scratch_bytes_, forward_, forward_from_host_, allocate);
    }

    void block_sparse_attention(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle first_object,
                                nb::handle blocks_object, nb::handle out_object, nb::handle lse_object,
                                const std::string& stage, bool causal, std::optional<float> scale, std::uintptr_t stream,
                                nb::object allocate) const {
        const Tensor q("q", q_object), k("k", k_object), v("v", v_object), out("the output", out_object);
        auto p = problem_of<FlashLadderBlockSparse>(q, k, v, stage, causal, scale);
        const Array first = ints_of("first", first_object, q), blocks = ints_of("blocks", blocks_object, q);
        constexpr std::size_t rows = 128;  // of a block
        const std::size_t T_r = (std::size_t(p.n_q) + rows - 1) / rows;
        if (first.ndim() != 1 || (first.shape(0) != T_r + 1 && first.shape(0) != T_r * std::size_t(p.heads) + 1))
            refuse(ValueError, "first must have {} numbers, or {} with lists for each head", T_r + 1,
                   T_r * std::size_t(p.heads) + 1);
        if (blocks.ndim() != 1) refuse(ValueError, "blocks must have one dimension");
        p.list_heads = first.shape(0) == T_r + 1 ? 1 : p.heads;
        p.first = static_cast<const int*>(first.data()), p.blocks = static_cast<const int*>(blocks.data());
        if (backend_ == "cpu" && p.first[first.shape(0) - 1] != std::int64_t(blocks.shape(0)))
            refuse(ValueError, "first ends with {}, but there are {} blocks", p.first[first.shape(0) - 1], blocks.shape(0));
        p.stream = reinterpret_cast<void*>(stream);
        p.O = const_cast<void*>(out.array.data());
        finish_and_launch(p, q, k, v, out, lse_object, lists_scratch_bytes_, lists_, lists_from_host_, allocate);
    }

    /// n_k: the most keys of a sequence; 0 for as many as a row of the table has room for.
    void paged_attention(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle table_object,
                         nb::handle lengths_object, nb::handle out_object, nb::handle lse_object, const std::string& stage,
                         bool causal, std::optional<float> scale, int n_k, std::uintptr_t stream,
                         nb::object allocate) const {
        constexpr const char* of_pages = "(pages, kv_heads, page_size, d)";
        const Tensor q("q", q_object), k("k_pages", k_object, of_pages), v("v_pages", v_object, of_pages);
        const Tensor out("the output", out_object);
        FlashLadderPaged p{};
        p.stage = stage.c_str(), p.dtype = c_dtype(q);
        for (const Tensor* t : {&k, &v}) {
            check_on_the_same(*t, q);
            check_equal("d =", *t, t->shape[3], q, q.shape[3]);
        }
        check_equal("pages:", v, v.shape[0], k, k.shape[0]);
        check_equal("heads:", v, v.shape[1], k, k.shape[1]);
        check_equal("page_size =", v, v.shape[2], k, k.shape[2]);
        check_device(q);
        const Array table = ints_of_sequences("block_table", table_object, q, &p.pages_of_sequence);
        const Array lengths = ints_of_sequences("lengths", lengths_object, q, nullptr);
        p.batch = q.shape[0], p.heads = q.shape[1], p.kv_heads = k.shape[1], p.n_q = q.shape[2], p.head_dim = q.shape[3];
        p.pages = k.shape[0], p.page_size = k.shape[2];
        p.n_k = n_k > 0 ? n_k : p.pages_of_sequence * p.page_size;
        p.causal = causal, p.scale = scale.value_or(1 / std::sqrt(float(q.shape[3])));
        p.Q = q.array.data(), p.K = k.array.data(), p.V = v.array.data(), p.O = const_cast<void*>(out.array.data());
        p.block_table = static_cast<const int*>(table.data()), p.lengths = static_cast<const int*>(lengths.data());
        p.stream = reinterpret_cast<void*>(stream);
        finish_and_launch(p, q, k, v, out, lse_object, paged_scratch_bytes_, paged_, paged_from_host_, allocate);
    }

    void varlen_attention(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle q_places_object,
                          nb::handle k_places_object, nb::handle out_object, nb::handle lse_object,
                          const std::string& stage, bool causal, std::optional<float> scale, std::uintptr_t stream,
                          nb::object allocate) const {
        const Tensor q("q", q_object, "(total_q, heads, d)", true), k("k", k_object, "(total_k, kv_heads, d)", true);
        const Tensor v("v", v_object, "(total_k, kv_heads, d_v)", true), out("the output", out_object, "", true);
        FlashLadderVarlen p{};
        p.stage = stage.c_str(), p.dtype = c_dtype(q);
        for (const Tensor* t : {&k, &v}) check_on_the_same(*t, q);
        check_equal("d =", k, k.shape[3], q, q.shape[3]);
        check_equal("heads:", v, v.shape[1], k, k.shape[1]);
        check_equal("rows:", v, v.shape[2], k, k.shape[2]);
        check_device(q);
        const Array q_places = places_of("cu_seqlens_q", q_places_object, q),
                    k_places = places_of("cu_seqlens_k", k_places_object, q);
        if (q_places.shape(0) != k_places.shape(0))
            refuse(ValueError, "cu_seqlens_k has {} numbers, but cu_seqlens_q has {}", k_places.shape(0), q_places.shape(0));
        p.sequences = static_cast<int>(q_places.shape(0)) - 1;
        p.heads = q.shape[1], p.kv_heads = k.shape[1], p.head_dim = q.shape[3], p.value_dim = v.shape[3];
        p.total_q = q.shape[2], p.total_k = k.shape[2];
        p.causal = causal, p.scale = scale.value_or(1 / std::sqrt(float(q.shape[3])));
        p.Q = q.array.data(), p.K = k.array.data(), p.V = v.array.data(), p.O = const_cast<void*>(out.array.data());
        p.cu_seqlens_q = static_cast<const int*>(q_places.data());
        p.cu_seqlens_k = static_cast<const int*>(k_places.data());
        p.stream = reinterpret_cast<void*>(stream);
        finish_and_launch(p, q, k, v, out, lse_object, varlen_scratch_bytes_, varlen_, varlen_from_host_, allocate);
    }

    /// One round of ring attention; all are contiguous shards. Without a scratch it says how many bytes that has.
    std::size_t ring_round(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle out_object,
                           nb::handle lse_object, nb::handle scratch_object, const std::string& stage, bool causal,
                           std::optional<float> scale, int ranks, int rank, int round, std::uintptr_t stream) const {
        const Tensor q("q", q_object), k("k", k_object), v("v", v_object);
        check_on_the_same(k, q);
        check_like(v, k);
        for (const int i : {0, 2, 3}) check_equal(i == 0 ? "batch" : i == 2 ? "n =" : "d =", k, k.shape[i], q, q.shape[i]);
        check_device(q);
        FlashLadderRingRound p{};
        p.stage = stage.c_str(), p.dtype = c_dtype(q);
        p.batch = q.shape[0], p.heads = q.shape[1], p.kv_heads = k.shape[1], p.n = q.shape[2] * ranks, p.head_dim = q.shape[3];
        p.causal = causal, p.scale = scale.value_or(1 / std::sqrt(float(q.shape[3])));
        p.ranks = ranks, p.rank = rank, p.round = round, p.stream = reinterpret_cast<void*>(stream);
        std::size_t bytes = 0;
        check(round_scratch_bytes_(&p, &bytes));
        if (scratch_object.is_none()) return bytes;
        const Tensor out("the output", out_object);
        Array lse, scratch = nb::cast<Array>(scratch_object);
        if (!lse_object.is_none())
            lse = nb::cast<Array>(lse_object), p.lse = static_cast<float*>(const_cast<void*>(lse.data()));
        p.Q = q.array.data(), p.K = k.array.data(), p.V = v.array.data(), p.O = const_cast<void*>(out.array.data());
        p.scratch = const_cast<void*>(scratch.data());
        if (backend_ == "cpu") {
            check(round_from_host_(&p));
            return bytes;
        }
        const char* error = nullptr;
        {
            const nb::gil_scoped_release release;
            error = round_(&p);
        }
        check(error);
        return bytes;
    }

    /// ValueError if the stage does not have the gradients of these.
    void check_backward(nb::handle q_object, nb::handle k_object, nb::handle v_object, const std::string& stage,
                        bool causal) const {
        const Tensor q("q", q_object), k("k", k_object), v("v", v_object);
        const auto p = problem_of<FlashLadderBackward>(q, k, v, stage, causal, std::nullopt);
        std::size_t bytes = 0;
        check(backward_scratch_bytes_(&p, &bytes));
    }

    void backward(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle out_object,
                  nb::handle lse_object, nb::handle dout_object, nb::handle dq_object, nb::handle dk_object,
                  nb::handle dv_object, const std::string& stage, bool causal, std::optional<float> scale,
                  std::uintptr_t stream, nb::object allocate) const {
        const Tensor q("q", q_object), k("k", k_object), v("v", v_object), out("out", out_object), dout("dout", dout_object);
        const Tensor dq("dq", dq_object), dk("dk", dk_object), dv("dv", dv_object);
        auto p = problem_of<FlashLadderBackward>(q, k, v, stage, causal, scale);
        p.stream = reinterpret_cast<void*>(stream);
        for (const Tensor* t : {&out, &dout}) check_like(*t, q);
        const Array lse = lse_of(lse_object, q);
        p.O = out.array.data(), p.dO = dout.array.data(), p.lse = static_cast<const float*>(lse.data());
        p.dQ = const_cast<void*>(dq.array.data()), p.dK = const_cast<void*>(dk.array.data());
        p.dV = const_cast<void*>(dv.array.data());
        std::size_t bytes = 0;
        check(backward_scratch_bytes_(&p, &bytes));
        q.get_strides(p.Q_strides), k.get_strides(p.K_strides), v.get_strides(p.V_strides);
        out.get_strides(p.O_strides), dout.get_strides(p.dO_strides);
        dq.get_strides(p.dQ_strides), dk.get_strides(p.dK_strides), dv.get_strides(p.dV_strides);
        launch(p, backward_, backward_from_host_, bytes, allocate);
    }

private:
    /// The problem of q, k and v, but for its pointers and strides. TypeError or ValueError if they do not go together.
    template <class Problem>
    Problem problem_of(const Tensor& q, const Tensor& k, const Tensor& v, const std::string& stage, bool causal,
                       std::optional<float> scale) const {
        Problem p{};
        p.stage = stage.c_str(), p.dtype = c_dtype(q);
        for (const Tensor* t : {&k, &v}) {
            check_on_the_same(*t, q);
            check_equal("batch", *t, t->shape[0], q, q.shape[0]);
            check_equal("d =", *t, t->shape[3], q, q.shape[3]);
        }
        check_equal("heads:", v, v.shape[1], k, k.shape[1]);
        check_equal("n =", v, v.shape[2], k, k.shape[2]);
        check_device(q);
        p.batch = q.shape[0], p.heads = q.shape[1], p.kv_heads = k.shape[1];
        p.n_q = q.shape[2], p.n_k = k.shape[2], p.head_dim = q.shape[3];
        p.causal = causal, p.scale = scale.value_or(1 / std::sqrt(float(q.shape[3])));
        p.Q = q.array.data(), p.K = k.array.data(), p.V = v.array.data();
        return p;
    }

    void check_device(const Tensor& q) const {
        if (q.device.rfind(backend_ == "gpu" ? "cuda:" : "cpu", 0) != 0)
            refuse(ValueError, "q is on {}, but must be on the CPU or a CUDA device", q.device);
    }

    /// What all problems of the way forth end with: LSE, scratch and strides.
    template <class Problem>
    void finish_and_launch(Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                           nb::handle lse_object, const char* (*scratch_bytes)(const Problem*, std::size_t*),
                           const char* (*from_device)(const Problem*), const char* (*from_host)(const Problem*),
                           const nb::object& allocate) const {
        Array lse;
        if (!lse_object.is_none())
            lse = nb::cast<Array>(lse_object), p.lse = static_cast<float*>(const_cast<void*>(lse.data()));
        std::size_t bytes = 0;
        check(scratch_bytes(&p, &bytes));  // "not supported" is a better answer than what strides are wrong
        q.get_strides(p.Q_strides), k.get_strides(p.K_strides), v.get_strides(p.V_strides);
        out.get_strides(p.O_strides);
        launch(p, from_device, from_host, bytes, allocate);
    }

    /// From the host's memory on the emulator; on a GPU with the scratch that allocate(bytes) gives.
    template <class Problem>
    void launch(Problem& p, const char* (*from_device)(const Problem*), const char* (*from_host)(const Problem*),
                std::size_t bytes, const nb::object& allocate) const {
        if (backend_ == "cpu") return check(from_host(&p));  // holds the GIL: the emulator has one thread

        Array scratch;
        if (bytes > 0) scratch = nb::cast<Array>(allocate(bytes)), p.scratch = const_cast<void*>(scratch.data());
        const char* error = nullptr;
        {
            const nb::gil_scoped_release others_may_run;
            error = from_device(&p);
        }
        check(error);
    }

    static void close(void*) {}  // never: who knows what of it still runs on a device

    template <class Function>
    Function function(const char* name) const {
        void* address = dlsym(handle_.get(), name);
        if (!address)
            throw std::runtime_error(format("it has no {}: it is no FlashLadder library, or an old one", name));
        return reinterpret_cast<Function>(address);
    }

    /// What the library refuses is a ValueError; what fails, a RuntimeError.
    void check(const char* error) const {
        if (error && refused_()) throw nb::value_error(error);
        if (error) throw std::runtime_error(error);
    }

    static const char* c_dtype(const Tensor& t) {
        for (const auto& [name, of_c] : {std::pair("float32", "f32"), {"float16", "f16"}, {"bfloat16", "bf16"}})
            if (t.dtype == name) return of_c;
        refuse(TypeError, "{} has dtype {}, but must have float32, float16 or bfloat16", t.name, t.dtype);
    }

    std::unique_ptr<void, void (*)(void*)> handle_;
    std::string backend_, stages_, backward_stages_;
    decltype(&flashladder_refused) refused_;
    decltype(&flashladder_scratch_bytes) scratch_bytes_;
    decltype(&flashladder_forward) forward_;
    decltype(&flashladder_forward_from_host) forward_from_host_;
    decltype(&flashladder_backward_scratch_bytes) backward_scratch_bytes_;
    decltype(&flashladder_backward) backward_;
    decltype(&flashladder_backward_from_host) backward_from_host_;
    decltype(&flashladder_paged_scratch_bytes) paged_scratch_bytes_;
    decltype(&flashladder_paged_attention) paged_;
    decltype(&flashladder_paged_attention_from_host) paged_from_host_;
    decltype(&flashladder_varlen_scratch_bytes) varlen_scratch_bytes_;
    decltype(&flashladder_varlen_attention) varlen_;
    decltype(&flashladder_varlen_attention_from_host) varlen_from_host_;
    decltype(&flashladder_block_sparse_scratch_bytes) lists_scratch_bytes_;
    decltype(&flashladder_block_sparse_attention) lists_;
    decltype(&flashladder_block_sparse_attention_from_host) lists_from_host_;
    decltype(&flashladder_ring_round_scratch_bytes) round_scratch_bytes_;
    decltype(&flashladder_ring_round) round_;
    decltype(&flashladder_ring_round_from_host) round_from_host_;
};

}  // namespace

NB_MODULE(_core, module) {
    nb::class_<Library>(module, "Library", "A backend's libflashladder.so. RuntimeError if the path names none.")
        .def(nb::init<std::string>(), nb::arg("path"))
        .def_prop_ro("backend", &Library::backend, "\"cpu\" or \"gpu\"")
        .def_prop_ro("stages", &Library::stages, "What the stages can do, as JSON.")
        .def("forward", &Library::forward, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out"),
             nb::arg("lse").none(), nb::arg("stage"), nb::arg("causal"), nb::arg("scale").none(), nb::arg("stream"),
             nb::arg("allocate").none(),
             "Writes to out, and to lse if it is not None. On a GPU on that stream of the current device, with the "
             "scratch that allocate(bytes) gives; else it waits.")
        .def("paged_attention", &Library::paged_attention, nb::arg("q"), nb::arg("k_pages"), nb::arg("v_pages"),
             nb::arg("block_table"), nb::arg("lengths"), nb::arg("out"), nb::arg("lse").none(), nb::arg("stage"),
             nb::arg("causal"), nb::arg("scale").none(), nb::arg("n_k"), nb::arg("stream"), nb::arg("allocate").none(),
             "As forward, of sequences whose keys and values lie in pages.")
        .def("varlen_attention", &Library::varlen_attention, nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("cu_seqlens_q"), nb::arg("cu_seqlens_k"), nb::arg("out"), nb::arg("lse").none(), nb::arg("stage"),
             nb::arg("causal"), nb::arg("scale").none(), nb::arg("stream"), nb::arg("allocate").none(),
             "As forward, of packed sequences.")
        .def("block_sparse_attention", &Library::block_sparse_attention, nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("first"), nb::arg("blocks"), nb::arg("out"), nb::arg("lse").none(), nb::arg("stage"), nb::arg("causal"),
             nb::arg("scale").none(), nb::arg("stream"), nb::arg("allocate").none(),
             "As forward, of the blocks of keys that lists name.")
        .def("ring_round", &Library::ring_round, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out").none(),
             nb::arg("lse").none(), nb::arg("scratch").none(), nb::arg("stage"), nb::arg("causal"), nb::arg("scale").none(),
             nb::arg("ranks"), nb::arg("rank"), nb::arg("round"), nb::arg("stream"),
             "A round of a rank, with the k and v of rank - round, all contiguous. Returns the bytes of the scratch; if it is "
             "None, does nothing else.")
        .def_prop_ro("backward_stages", &Library::backward_stages, "What the stages of the way back can do, as JSON.")
        .def("check_backward", &Library::check_backward, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("stage"),
             nb::arg("causal"), "ValueError if the stage does not have the gradients of these, whatever their strides.")
        .def("backward", &Library::backward, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out"), nb::arg("lse"),
             nb::arg("dout"), nb::arg("dq"), nb::arg("dk"), nb::arg("dv"), nb::arg("stage"), nb::arg("causal"),
             nb::arg("scale").none(), nb::arg("stream"), nb::arg("allocate").none(),
             "Writes the gradients to dq, dk and dv, as forward does the output.");
}
