#include "runtime/batches/batches.hpp"

#include <utility>

#include "tensor/any_value.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::runtime {

namespace {

using codec::Json;
using codec::Marker;
using codec::Value;

bool is_tensor(const Value& value) { return codec::marker_of(value.json) == Marker::tensor; }

Value value_of(const codec::TensorPointer& tensor) { return {Json{{"$tensor", 0}}, {tensor}}; }

/// Returns the number of rows of a tensor argument. Throws InvalidValue if another argument has a different number.
std::int64_t rows_of_argument(const TensorRef& tensor, std::optional<std::int64_t> known) {
    if (tensor.rank() == 0)
        throw InvalidValue({}, "a tensor with at least one dimension, along which calls are joined", "one without");
    const std::int64_t rows = tensor.shape()[0];
    if (known && rows != *known) {
        throw InvalidValue({}, std::to_string(*known) + " rows (dimension 0), as the other tensors of the call have",
                           std::to_string(rows));
    }
    return rows;
}

/// Appends what joined tensors have in common.
void append_row_kind(const TensorRef& tensor, std::string& key) {
    key.append(name_of(tensor.dtype())).push_back('[');
    for (const std::int64_t size : tensor.shape().subspan(1))
        key.append(std::to_string(size)).push_back(',');
    key.push_back(']');
}

/// Appends what makes two arguments equal. False if that cannot be told.
bool append_value(const Value& value, std::string& key) {
    if (!value.tensors.empty()) return false;
    json_rpc::print_json(value.json, key);
    for (const ObjectPointer& object : value.objects)
        key.append(1, '@').append(std::to_string(reinterpret_cast<std::uintptr_t>(object->value.get())));
    return true;
}

std::shared_ptr<const Value> joined(std::span<const BatchArguments* const> calls, std::size_t parameter) {
    const TensorRef& first = calls.front()->values[parameter]->tensors.front()->tensor();
    tensor::Shape shape(first.shape().begin(), first.shape().end());
    shape[0] = 0;
    for (const BatchArguments* call : calls)
        shape[0] += call->rows;
    const TensorRef whole = tensor::allocate(first.dtype(), shape);
    std::byte* out = whole.mutable_data();
    for (const BatchArguments* call : calls) {
        const TensorRef& part = call->values[parameter]->tensors.front()->tensor();
        tensor::copy_elements(part, out);
        out += part.bytes();
    }
    return std::make_shared<const Value>(value_of(tensor::make_handle(whole)));
}

}  // namespace

std::variant<std::optional<BatchArguments>, json_rpc::Error> batch_arguments(const FunctionRecord& function,
                                                                             const ArgumentNodes& nodes,
                                                                             const codec::JsonSource& source) {
    BatchArguments arguments;
    std::optional<std::int64_t> rows;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        arguments.key.push_back(';');
        if (nodes[i] == nullptr) {
            arguments.values.push_back(nullptr);
            continue;
        }
        const codec::TensorPointer imported = source.imported(nodes[i]);  // nested arrays too, if they were read as one
        auto value = std::make_shared<const Value>(
            imported != nullptr ? value_of(imported)
                                : tensor::read_any(ValueReader(source, nodes[i]), Access::concurrent).value);
        if (!is_tensor(*value)) {
            if (!append_value(*value, arguments.key)) return std::nullopt;
        } else if (value->tensors.front()->on_device()) {
            return std::nullopt;
        } else {
            const TensorRef& tensor = value->tensors.front()->tensor();
            try {
                rows = rows_of_argument(tensor, rows);
            } catch (const InvalidValue& error) {
                return json_rpc::invalid_params(function.parameters()[i].name, error.expected, error.got);
            }
            append_row_kind(tensor, arguments.key);
        }
        arguments.values.push_back(std::move(value));
    }
    if (!rows) return std::nullopt;
    arguments.rows = *rows;
    return arguments;
}

Binding bind_joined(const FunctionRecord& function, std::span<const BatchArguments* const> calls) {
    const auto& first = calls.front()->values;
    codec::TensorPort no_imports;
    const FunctionOptions& options = function.options();
    codec::JsonSource source(no_imports, nullptr, Placement{options.device, options.dtype});
    ArgumentNodes nodes(first.size(), nullptr);
    for (std::size_t i = 0; i < first.size(); ++i) {
        if (first[i] != nullptr) nodes[i] = source.hold(is_tensor(*first[i]) ? joined(calls, i) : first[i]);
    }
    return function.bind(source, nodes);
}

}  // namespace shared_tensor::runtime
