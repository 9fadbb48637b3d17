#include "fragments.h"
#include "tile/online_softmax.h"
#include "tile/transposed_scores.h"

namespace flashladder {
namespace {

template <int rows, int columns>
__global__ void change_kernel(Change change, const float* C, const float* row_values, const float* parameters,
                              float* results) {
    const int first = threadIdx.x / warp * rows;
    const float parameter = parameters[blockIdx.x];
    tile::Accumulator<rows, columns> C_reg;
    tile::RowValues<rows> values;
    read(C_reg, C + first * columns);
    read(values, row_values + first);
    switch (change) {
        case Change::fill:
            tile::fill(C_reg, parameter);
            break;
        case Change::multiply_all:
            tile::multiply_all(C_reg, parameter);
            break;
        case Change::multiply_rows:
            tile::multiply_rows(C_reg, values);
            break;
        case Change::hide_columns:
            tile::hide_columns(C_reg, int(parameter));
            break;
        case Change::hide_right_of:
            tile::hide_right_of(C_reg, int(parameter));
            break;
        case Change::hide_rows:
            tile::hide_rows(C_reg, int(parameter));
            break;
        case Change::hide_below:
            tile::hide_below(C_reg, int(parameter));
            break;
        case Change::exponentials:
            tile::exponentials(C_reg, values);
            break;
    }
    write(results + (blockIdx.x * 2 * rows + first) * columns, C_reg);
}

template <int rows, int columns>
__global__ void row_max_kernel(const float* C, const float* m, float* results) {
    const int first = threadIdx.x / warp * rows;
    tile::Accumulator<rows, columns> C_reg;
    tile::RowValues<rows> values;
    read(C_reg, C + first * columns);
    read(values, m + first);
    write(results + first * 4, tile::row_max(C_reg, values));
}

template <int rows, int columns>
__global__ void multiply_elements_kernel(const float* C, const float* B, float* results) {
    const int first = threadIdx.x / warp * rows;
    tile::Accumulator<rows, columns> C_reg, B_reg;
    read(C_reg, C + first * columns);
    read(B_reg, B + first * columns);
    tile::multiply_elements(C_reg, B_reg);
    write(results + first * columns, C_reg);
}

template <class T, int rows, int columns>
__global__ void to_operand_kernel(const float* C, std::uint16_t* results) {
    const int first = threadIdx.x / warp * rows;
    tile::Accumulator<rows, columns> C_reg;
    read(C_reg, C + first * columns);
    write(results + first * columns, tile::to_operand<T>(C_reg));
}

__global__ void places_kernel(int* rows, int* columns) {
    for (int i = 0; i < 4; ++i) rows[threadIdx.x * 4 + i] = tile::row_of(i / 2, i % 2);
    for (int i = 0; i < 16; ++i) columns[threadIdx.x * 16 + i] = tile::column_of(i / 4, i % 4);
}

__global__ void change_rows_kernel(RowChange change, const float* values, const float* others, float parameter,
                                   float* results) {
    const int first = threadIdx.x / warp * 32;
    tile::RowValues<32> v, w;
    read(v, values + first);
    read(w, others + first);
    if (change == RowChange::fill) tile::fill(v, parameter);
    if (change == RowChange::multiply_rows) tile::multiply_rows(v, w);
    if (change == RowChange::rescale_factor) v = tile::rescale_factor(v, w);
    write(results + first * 4, v);
}

template <int rows, int columns>
Floats change(Change change, const Floats& C, const Floats& row_values, const Floats& parameters) {
    const DeviceArray<float> C_device(C), values(row_values), parameters_device(parameters);
    const DeviceArray<float> results(C.size() * parameters.size());
    launch_kernel(change_kernel<rows, columns>, {unsigned(parameters.size()), 2 * warp}, change, C_device.data(),
                  values.data(), parameters_device.data(), results.data());
    return results.download();
}

template <int rows, int columns>
Floats row_max(const Floats& C, const Floats& m) {
    const DeviceArray<float> C_device(C), m_device(m), results(m.size() * 4);
    launch_kernel(row_max_kernel<rows, columns>, {1, 2 * warp}, C_device.data(), m_device.data(), results.data());
    return results.download();
}

template <int rows, int columns>
Floats multiply_elements(const Floats& C, const Floats& B) {
    const DeviceArray<float> C_device(C), B_device(B), results(C.size());
    launch_kernel(multiply_elements_kernel<rows, columns>, {1, 2 * warp}, C_device.data(), B_device.data(),
                  results.data());
    return results.download();
}

template <int rows, int columns>
Bits16 to_operand(Element element, const Floats& C) {
    const DeviceArray<float> C_device(C);
    const DeviceArray<std::uint16_t> results(C.size());
    launch_kernel(element == Element::bf16 ? to_operand_kernel<__nv_bfloat16, rows, columns>
                                           : to_operand_kernel<__half, rows, columns>,
                  {1, 2 * warp}, C_device.data(), results.data());
    return results.download();
}

template <int rows, int columns>
RegisterCase register_case() {
    RegisterCase c{rows, columns, change<rows, columns>, row_max<rows, columns>, multiply_elements<rows, columns>,
                   nullptr};
    if constexpr (columns % 16 == 0) c.to_operand = to_operand<rows, columns>;
    return c;
}

}  // namespace

std::vector<RegisterCase> register_cases() {
    return {register_case<16, 8>(),  register_case<16, 16>(), register_case<32, 16>(),
            register_case<32, 32>(), register_case<16, 64>(), register_case<32, 128>()};
}

Places places() {
    const DeviceArray<int> rows(2 * warp * 4), columns(2 * warp * 16);
    launch_kernel(places_kernel, {1, 2 * warp}, rows.data(), columns.data());
    return {rows.download(), columns.download()};
}

Floats change_rows(RowChange change, const Floats& values, const Floats& others, float parameter) {
    const DeviceArray<float> values_device(values), others_device(others), results(values.size() * 4);
    launch_kernel(change_rows_kernel, {1, 2 * warp}, change, values_device.data(), others_device.data(), parameter,
                  results.data());
    return results.download();
}

}  // namespace flashladder
