#pragma once

// For tests without libtorch (unit_tests links none): a tensor that is nothing but a name, and a port that carries it.
// Include it in no file that also includes a header of libtorch.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <shared_tensor/value.hpp>

#include "codec/value.hpp"

namespace at {

class Tensor {
public:
    std::string name;
};

}  // namespace at

namespace shared_tensor::test {

class FakeTensor final : public codec::TensorHandle {
public:
    explicit FakeTensor(std::string name, std::uint64_t bytes = 0, bool on_device = false)
        : tensor_{std::move(name)}, bytes_(bytes), on_device_(on_device) {}
    const at::Tensor& tensor() const override { return tensor_; }
    std::uint64_t bytes() const override { return bytes_; }
    bool on_device() const override { return on_device_; }
    bool append_key(std::string& key) const override {
        if (bytes_ > kMaxKeyBytes) return false;
        key += tensor_.name;
        return true;
    }
    void append_digest(std::string& key) const override { key += "digest of " + tensor_.name; }
    static constexpr std::uint64_t kMaxKeyBytes = 1 << 20;

private:
    at::Tensor tensor_;
    std::uint64_t bytes_;
    bool on_device_;
};

/// {"name": "x"} <-> at::Tensor{"x"}; anything else is refused at the place "name".
class FakePort final : public codec::TensorPort {
public:
    codec::TensorPointer import(const codec::Json& descriptor) override {
        ++imports;
        if (!descriptor.is_object() || !descriptor.contains("name") || !descriptor["name"].is_string()) {
            throw InvalidValue("name", "string", "nothing");
        }
        return std::make_shared<FakeTensor>(descriptor["name"].get<std::string>());
    }
    codec::TensorPointer wrap(const at::Tensor& tensor) override { return std::make_shared<FakeTensor>(tensor.name); }
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override {
        out += codec::Json{{"name", tensor->tensor().name}}.dump();
    }

    int imports = 0;
};

}  // namespace shared_tensor::test
