#include "operations/attention/inputs.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/dtype.h"
#include "harness/project_root.h"
#include "harness/random.h"
#include "in_parallel.h"

namespace flashladder::attention {
namespace {

void round_inputs(Inputs& in) {
    for (auto* tensor : {&in.Q, &in.K, &in.V})
        in_parallel(tensor->size(), 1 << 16, [dtype = in.shape.dtype, x = tensor->data()](std::size_t i, std::size_t end) {
            for (; i < end; ++i) x[i] = round_to(dtype, x[i]);
        });
}

}  // namespace

const char* to_string(Values values) {
    switch (values) {
        case Values::normal: return "normal";
        case Values::peaky: return "peaky";
        case Values::growing_maximum: return "growing maximum";
        case Values::large_offset: return "large offset";
        case Values::zero_values_first: return "zero values first";
    }
    return "?";
}

Inputs make_inputs(const AttentionShape& shape, Values values, std::uint64_t seed, int value_dim) {
    Inputs in{shape, {}, {}, {}, static_cast<float>(1 / std::sqrt(double(shape.head_dim))), value_dim};
    const std::size_t d = shape.head_dim, d_v = in.columns_of_V(), n_q = shape.n_q, n_k = shape.n_k;
    std::size_t drawn = 0;
    for (const auto& [tensor, n] : {std::pair(&in.Q, shape.q_elements()), {&in.K, shape.kv_elements()},
                                    {&in.V, shape.kv_elements() / d * d_v}}) {
        tensor->resize(n);
        fill_with_normal(*tensor, seed, drawn);
        drawn += n;
    }

    const float root = std::sqrt(float(d));
    switch (values) {
        case Values::normal: break;
        case Values::peaky:
            for (float& x : in.Q) x *= 6;
            break;
        case Values::growing_maximum:  // the first coordinate adds a score of its own: from -8 to 8, rising with j
            for (std::size_t r = 0; r < in.Q.size() / d; ++r) in.Q[r * d] = root;
            for (std::size_t r = 0; r < in.K.size() / d; ++r) in.K[r * d] = 16 * float(r % n_k + 1) / float(n_k) - 8;
            break;
        case Values::large_offset:
            for (std::size_t r = 0; r < in.Q.size() / d; ++r) in.Q[r * d] = r % n_q % 2 ? -root : root;
            for (std::size_t r = 0; r < in.K.size() / d; ++r) in.K[r * d] = 200;
            break;
        case Values::zero_values_first:
            for (std::size_t r = 0; r < in.V.size() / d_v; ++r)
                if (r % n_k + 32 < n_k) std::fill_n(in.V.begin() + static_cast<std::ptrdiff_t>(r * d_v), d_v, 0.0f);
            break;
    }
    round_inputs(in);
    return in;
}

Inputs real_inputs(int head_dim, DType dtype) {
    const std::string path = project_root() + "/tests/fixtures/minilm.safetensors";
    const auto fail = [&](const std::string& why) { return std::runtime_error(fmt::format("{}: {}", path, why)); };
    std::ifstream file(path, std::ios::binary);
    if (!file) throw fail("cannot be opened");
    std::uint64_t header_bytes = 0;  // safetensors: the length of a JSON header, the header, the tensors
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    if (!file || header_bytes > 1 << 20) throw fail("is not a safetensors file");
    std::string text(header_bytes, ' ');
    file.read(text.data(), static_cast<std::streamsize>(header_bytes));
    const auto header = nlohmann::json::parse(text, nullptr, false);
    if (!file || header.is_discarded()) throw fail("has no readable header");

    Inputs in;
    const auto load = [&](const char* name) {
        const auto& entry = header.at(name);
        const std::vector<int> dims = entry.at("shape");
        const std::vector<std::uint64_t> range = entry.at("data_offsets");
        if (dims.size() != 4 || entry.at("dtype") != "F32" || dims[3] > head_dim)
            throw fail("is not what was expected");
        in.shape = {dims[0], dims[1], dims[1], dims[2], dims[2], head_dim, false, dtype};
        in.scale = static_cast<float>(1 / std::sqrt(double(dims[3])));
        std::vector<float> values((range.at(1) - range.at(0)) / sizeof(float));
        file.seekg(static_cast<std::streamoff>(sizeof header_bytes + header_bytes + range[0]));
        file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
        if (!file) throw fail("is too short");
        const std::size_t d = dims[3], rows = values.size() / d;
        std::vector<float> padded(rows * static_cast<std::size_t>(head_dim), 0.0f);
        for (std::size_t r = 0; r < rows; ++r)
            std::copy_n(&values[r * d], d, &padded[r * static_cast<std::size_t>(head_dim)]);
        return padded;
    };
    in.Q = load("Q");
    in.K = load("K");
    in.V = load("V");
    round_inputs(in);
    return in;
}

}  // namespace flashladder::attention
