#pragma once

// For tests that only pass tensors on: a tensor whose elements are a name, and a port for such tensors.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <shared_tensor/tensor_ref.hpp>

#include "protocol/codec/value.hpp"

namespace shared_tensor::test {

inline TensorRef tensor_named(const std::string& name) {
    const auto text = std::make_shared<std::string>(name);
    return {text->data(), DType::uint8, {static_cast<std::int64_t>(text->size())}, {}, {}, text};
}
inline std::string name_in(const TensorRef& tensor) {
    return {reinterpret_cast<const char*>(tensor.data()), static_cast<std::size_t>(tensor.elements())};
}

class FakeTensor final : public codec::TensorHandle {
public:
    explicit FakeTensor(const std::string& name, std::uint64_t bytes = 0, bool on_device = false)
        : tensor_(tensor_named(name)), bytes_(bytes), on_device_(on_device) {}
    const TensorRef& tensor() const override { return tensor_; }
    std::uint64_t bytes() const override { return bytes_; }
    bool on_device() const override { return on_device_; }
    bool append_key(std::string& key) const override {
        if (bytes_ > kMaxKeyBytes) return false;
        key += name_in(tensor_);
        return true;
    }
    void append_digest(std::string& key) const override { key += "digest of " + name_in(tensor_); }
    static constexpr std::uint64_t kMaxKeyBytes = 1 << 20;

private:
    const TensorRef tensor_;
    const std::uint64_t bytes_;
    const bool on_device_;
};

/// Converts {"name": "x"} to tensor_named("x") and back. Rejects any other descriptor, with the path "name".
class FakePort final : public codec::TensorPort {
public:
    codec::TensorPointer import(const codec::Json& descriptor) override {
        ++imports;
        if (!descriptor.is_object() || !descriptor.contains("name") || !descriptor["name"].is_string()) {
            throw InvalidValue("name", "string", "nothing");
        }
        return std::make_shared<FakeTensor>(descriptor["name"].get<std::string>());
    }
    codec::TensorPointer wrap(const TensorRef& tensor) override {
        return std::make_shared<FakeTensor>(name_in(tensor));
    }
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override {
        out += codec::Json{{"name", name_in(tensor->tensor())}}.dump();
    }

    int imports = 0;
};

}  // namespace shared_tensor::test
