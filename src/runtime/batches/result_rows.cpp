#include "runtime/batches/batches.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "protocol/codec/json_source.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::runtime {

namespace {

using codec::Json;
using codec::Marker;
using codec::Value;

bool holds_marked(const Json& json) {
    bool found = false;
    codec::for_each_marked(json, [&](Marker, const Json&) { found = true; });
    return found;
}

/// Whether the rows are in the members of this part of a result, and not its elements.
bool is_container(const Json& json) { return json.is_object() || (json.is_array() && holds_marked(json)); }

[[noreturn]] void reject(std::int64_t rows, const std::string& got) {
    throw InvalidValue(
        "the result",
        "one row for each of the " + std::to_string(rows) + " rows of the arguments, because the function is batched",
        got);
}

void check(const Json& json, const Value& result, std::int64_t rows) {
    switch (codec::marker_of(json)) {
        case Marker::tensor: {
            const TensorRef& tensor = result.tensors.at(json.begin()->get<std::size_t>())->tensor();
            if (tensor.rank() > 0 && tensor.shape()[0] == rows) return;
            return reject(rows, "a tensor of shape " + tensor::text_of(tensor.shape()));
        }
        case Marker::object: reject(rows, "an object that stays in the server");
        default: break;
    }
    if (json.is_null()) return;
    if (is_container(json)) {
        for (const Json& member : json)
            check(member, result, rows);
    } else if (!json.is_array() || json.size() != static_cast<std::size_t>(rows)) {
        reject(rows, codec::described(json));
    }
}

/// Takes rows out of a result.
class Taken {
public:
    Taken(const Value& result, std::int64_t first, std::int64_t last, Views views)
        : result_(result), first_(first), last_(last), views_(views) {}

    Json part_of(const Json& json) {
        if (codec::marker_of(json) == Marker::tensor) return tensor_part(json.begin()->get<std::size_t>());
        if (!is_container(json))
            return json.is_null() ? json : Json(Json::array_t(json.begin() + first_, json.begin() + last_));
        Json part = json;
        for (Json& member : part)
            member = part_of(member);
        return part;
    }
    std::vector<codec::TensorPointer> tensors() { return std::move(tensors_); }

private:
    Json tensor_part(std::size_t index) {
        const codec::TensorPointer& whole = result_.tensors.at(index);
        const TensorRef part = whole->tensor().slice(first_, last_);
        tensors_.push_back(tensor::make_handle(views_ == Views::copied && !whole->on_device() ? copy_of(part) : part));
        return {{"$tensor", tensors_.size() - 1}};
    }
    static TensorRef copy_of(const TensorRef& part) {
        TensorRef copy = tensor::allocate(part.dtype(), part.shape());
        tensor::copy_elements(part, copy.mutable_data());
        return copy;
    }

    const Value& result_;
    const std::int64_t first_, last_;
    const Views views_;
    std::vector<codec::TensorPointer> tensors_;
};

}  // namespace

void check_rows(const Value& result, std::int64_t rows) { check(result.json, result, rows); }

Value rows_of(const Value& result, std::int64_t first, std::int64_t last, Views views) {
    Taken taken(result, first, last, views);
    Json json = taken.part_of(result.json);
    return {std::move(json), taken.tensors()};
}

}  // namespace shared_tensor::runtime
