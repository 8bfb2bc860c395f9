#pragma once

#include <unordered_map>

#include <shared_tensor/value.hpp>

#include "codec/value.hpp"

namespace shared_tensor::codec {

/// Values received as JSON. Nodes are `const Json*` of a document that must outlive the source.
class JsonSource final : public ValueSource {
public:
    /// Tensors are imported when they are first read; `port` must outlive the source.
    explicit JsonSource(TensorPort& port) : port_(&port) {}

    static Node node(const Json& json) { return &json; }

    Kind kind(Node node) const override;
    bool boolean(Node node) const override;
    std::int64_t integer(Node node) const override;
    std::uint64_t unsigned_integer(Node node) const override;
    double number(Node node) const override;
    std::string_view string(Node node) const override;
    std::size_t size(Node node) const override;
    Node element(Node node, std::size_t index) const override;
    Node member(Node node, std::string_view key) const override;
    void each_member(Node node, const std::function<void(std::string_view, Node)>& visit) const override;
    const at::Tensor& tensor(Node node) const override;
    std::string describe(Node node) const override;

    /// The tensor imported for that node, null if it was never read.
    TensorPointer imported(Node node) const;

private:
    TensorPort* port_;
    mutable std::unordered_map<Node, TensorPointer> tensors_;
};

}  // namespace shared_tensor::codec
