#include "tensor/any_value.hpp"

#include <cstdint>
#include <string>

#include "tensor/handle.hpp"

namespace shared_tensor {

using tensor::AnyValue;

namespace {

void copy(const ValueReader& from, ValueWriter to, Access access) {
    switch (from.kind()) {
        case Kind::null: return to.null();
        case Kind::boolean: return to.boolean(from.boolean());
        case Kind::integer: return to.integer(from.integer());
        case Kind::unsigned_integer: return to.unsigned_integer(from.unsigned_integer());
        case Kind::number: return to.number(from.number());
        case Kind::string: return to.string(from.string());
        case Kind::tensor: return to.tensor(from.tensor());
        case Kind::handle: return to.handle(from.handle(access));
        case Kind::array:
            to.array(from.size());
            for (std::size_t i = 0; i < from.size(); ++i)
                copy(from.element(i), to.append(), access);
            return;
        case Kind::object:
            to.object();
            from.each_member(
                [&](std::string_view key, const ValueReader& member) { copy(member, to.member(key), access); });
            return;
        case Kind::unknown: break;
    }
    from.fail("a value of a known kind");
}

void write_plain(ValueWriter to, const codec::Json& json, const codec::Value& value);

void write_members(ValueWriter to, const codec::Json& object, const codec::Value& value) {
    to.object();
    for (const auto& [key, member] : object.items())
        write_plain(to.member(key), member, value);
}

/// Writes a part of `value`, with its placeholders of tensors and objects resolved.
void write_plain(ValueWriter to, const codec::Json& json, const codec::Value& value) {
    if (json.is_object()) {
        const auto index = [&] { return json.begin()->get<std::size_t>(); };
        switch (codec::marker_of(json)) {
            case codec::Marker::tensor: return to.tensor(value.tensors.at(index())->tensor());
            case codec::Marker::object: return to.handle(value.objects.at(index()));
            case codec::Marker::literal: return write_members(to, *json.begin(), value);
            default: return write_members(to, json, value);
        }
    }
    if (json.is_array()) {
        to.array(json.size());
        for (const codec::Json& element : json)
            write_plain(to.append(), element, value);
        return;
    }
    if (json.is_string()) return to.string(json.get_ref<const std::string&>());
    if (json.is_boolean()) return to.boolean(json.get<bool>());
    if (json.is_number_unsigned()) return to.unsigned_integer(json.get<std::uint64_t>());
    if (json.is_number_integer()) return to.integer(json.get<std::int64_t>());
    if (json.is_number()) return to.number(json.get<double>());
    to.null();
}

}  // namespace

AnyValue tensor::read_any(const ValueReader& reader, Access access) {
    AnyValue read;
    tensor::WrappingPort port;
    codec::JsonSink sink(read.value, port);
    copy(reader, ValueWriter(sink, sink.root()), access);
    return read;
}

void Codec<AnyValue>::write(ValueWriter writer, const AnyValue& value) {
    write_plain(writer, value.value.json, value.value);
}

}  // namespace shared_tensor
