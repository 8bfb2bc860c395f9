#include "torch/script_value.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <vector>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/torch.hpp>

namespace shared_tensor::models {

namespace {

using c10::TypeKind;

bool is_plain(TypeKind kind) {
    static constexpr std::array kPlain{TypeKind::TensorType, TypeKind::IntType,    TypeKind::FloatType,
                                       TypeKind::BoolType,   TypeKind::StringType, TypeKind::NumberType,
                                       TypeKind::NoneType};
    return std::find(kPlain.begin(), kPlain.end(), kind) != kPlain.end();
}

bool is_container(TypeKind kind) {
    return kind == TypeKind::OptionalType || kind == TypeKind::ListType || kind == TypeKind::TupleType ||
           kind == TypeKind::DictType;
}

c10::IValue read_number(const ValueReader& reader) {
    if (reader.kind() == Kind::integer || reader.kind() == Kind::unsigned_integer)
        return Codec<std::int64_t>::read(reader);
    return Codec<double>::read(reader);
}

c10::IValue read_list(const ValueReader& reader, const c10::Type& type) {
    reader.require(Kind::array, "array");
    c10::impl::GenericList list(type.containedType(0));
    list.reserve(reader.size());
    for (std::size_t i = 0; i < reader.size(); ++i)
        list.push_back(read(reader.element(i), *type.containedType(0)));
    return list;
}

c10::IValue read_tuple(const ValueReader& reader, const c10::Type& type) {
    const auto types = type.containedTypes();
    if (reader.kind() != Kind::array || reader.size() != types.size()) {
        reader.fail("array of " + std::to_string(types.size()));
    }
    std::vector<c10::IValue> elements;
    for (std::size_t i = 0; i < types.size(); ++i)
        elements.push_back(read(reader.element(i), *types[i]));
    return c10::ivalue::Tuple::create(std::move(elements));
}

c10::IValue read_dict(const ValueReader& reader, const c10::Type& type) {
    reader.require(Kind::object, "object");
    c10::impl::GenericDict dict(type.containedType(0), type.containedType(1));
    reader.each_member([&](std::string_view key, const ValueReader& member) {
        dict.insert(std::string(key), read(member, *type.containedType(1)));
    });
    return dict;
}

void write_list(ValueWriter writer, c10::ArrayRef<c10::IValue> elements) {
    writer.array(elements.size());
    for (const c10::IValue& element : elements)
        write(writer.append(), element);
}

void write_dict(ValueWriter writer, const c10::IValue& value) {
    writer.object();
    for (const auto& entry : value.toGenericDict())
        write(writer.member(entry.key().toStringRef()), entry.value());
}

void write_tensor(ValueWriter writer, const at::Tensor& tensor) {
    if (tensor.defined()) {
        Codec<at::Tensor>::write(writer, tensor);
    } else {
        writer.null();
    }
}

void write_tuple_schema(ValueWriter writer, const c10::Type& type) {
    detail::write_type(writer, "array");
    ValueWriter items = writer.member("prefixItems");
    items.array(type.containedTypeSize());
    for (const auto& inner : type.containedTypes())
        write_schema(items.append(), *inner);
    writer.member("minItems").unsigned_integer(type.containedTypeSize());
    writer.member("maxItems").unsigned_integer(type.containedTypeSize());
}

void write_optional_schema(ValueWriter writer, const c10::Type& type) {
    writer.object();
    ValueWriter choices = writer.member("anyOf");
    choices.array(2);
    write_schema(choices.append(), *type.expectRef<c10::OptionalType>().getElementType());
    ValueWriter null = choices.append();
    detail::write_type(null, "null");
}

}  // namespace

std::string rejection(const c10::Type& type) {
    if (is_plain(type.kind())) return {};
    if (!is_container(type.kind())) return type.repr_str();
    if (type.kind() == TypeKind::DictType && type.containedType(0)->kind() != TypeKind::StringType)
        return type.repr_str();
    for (const auto& inner : type.containedTypes()) {
        if (std::string what = rejection(*inner); !what.empty()) return what;
    }
    return {};
}

c10::IValue read(const ValueReader& reader, const c10::Type& type) {
    switch (type.kind()) {
        case TypeKind::TensorType: return Codec<at::Tensor>::read(reader);
        case TypeKind::IntType: return Codec<std::int64_t>::read(reader);
        case TypeKind::FloatType: return Codec<double>::read(reader);
        case TypeKind::BoolType: return Codec<bool>::read(reader);
        case TypeKind::StringType: return Codec<std::string>::read(reader);
        case TypeKind::NumberType: return read_number(reader);
        case TypeKind::OptionalType:
            if (reader.kind() == Kind::null) return {};
            return read(reader, *type.expectRef<c10::OptionalType>().getElementType());
        case TypeKind::ListType: return read_list(reader, type);
        case TypeKind::TupleType: return read_tuple(reader, type);
        case TypeKind::DictType: return read_dict(reader, type);
        default: reader.require(Kind::null, "null"); return {};
    }
}

void write(ValueWriter writer, const c10::IValue& value) {
    if (value.isNone()) return writer.null();
    if (value.isTensor()) return write_tensor(writer, value.toTensor());
    if (value.isBool()) return writer.boolean(value.toBool());
    if (value.isInt()) return writer.integer(value.toInt());
    if (value.isDouble()) return writer.number(value.toDouble());
    if (value.isString()) return writer.string(value.toStringRef());
    if (value.isList()) return write_list(writer, value.toListRef());
    if (value.isTuple()) return write_list(writer, value.toTupleRef().elements());
    if (value.isGenericDict()) return write_dict(writer, value);
    throw std::invalid_argument("a value of the TorchScript type " + value.tagKind() + " can't be a result");
}

void write_schema(ValueWriter writer, const c10::Type& type) {
    switch (type.kind()) {
        case TypeKind::TensorType: return Codec<at::Tensor>::schema(writer);
        case TypeKind::IntType: return Codec<std::int64_t>::schema(writer);
        case TypeKind::FloatType:
        case TypeKind::NumberType: return Codec<double>::schema(writer);
        case TypeKind::BoolType: return Codec<bool>::schema(writer);
        case TypeKind::StringType: return Codec<std::string>::schema(writer);
        case TypeKind::OptionalType: return write_optional_schema(writer, type);
        case TypeKind::ListType:
            detail::write_type(writer, "array");
            return write_schema(writer.member("items"), *type.containedType(0));
        case TypeKind::DictType:
            detail::write_type(writer, "object");
            return write_schema(writer.member("additionalProperties"), *type.containedType(1));
        case TypeKind::TupleType: return write_tuple_schema(writer, type);
        default: return detail::write_type(writer, "null");
    }
}

}  // namespace shared_tensor::models
