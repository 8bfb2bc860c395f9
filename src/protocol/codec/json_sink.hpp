#pragma once

#include <shared_tensor/value.hpp>

#include "protocol/codec/value.hpp"

namespace shared_tensor::codec {

/// Collects the result of a function into a Value. Nodes are `Json*` inside that Value, which must outlive the sink.
class JsonSink final : public ValueSink {
public:
    enum class References { reject, write };
    /// `port` wraps tensors and must outlive the sink. Only requests may hold references.
    JsonSink(Value& value, TensorPort& port, References references = References::reject)
        : value_(&value), port_(&port), references_(references) {}

    Node root() { return &value_->json; }

    void null(Node node) override;
    void boolean(Node node, bool value) override;
    void integer(Node node, std::int64_t value) override;
    void unsigned_integer(Node node, std::uint64_t value) override;
    void number(Node node, double value) override;
    void number(Node node, float value) override;
    void string(Node node, std::string_view value) override;
    void array(Node node, std::size_t size_hint) override;
    Node append(Node node) override;
    void object(Node node) override;
    Node member(Node node, std::string_view key) override;
    void tensor(Node node, const TensorRef& value) override;
    void handle(Node node, const ObjectPointer& value) override;
    void reference_to_item(Node node, std::uint64_t id) override;
    void reference_to_name(Node node, std::string_view name) override;

private:
    void refer(Node node, Json to) const;

    Value* value_;
    TensorPort* port_;
    References references_;
};

}  // namespace shared_tensor::codec
