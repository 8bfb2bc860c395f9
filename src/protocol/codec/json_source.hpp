#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <shared_tensor/value.hpp>

#include "protocol/codec/value.hpp"

namespace shared_tensor::codec {

/// Describes a plain JSON value for error messages, in a short text: "number -1", "string \"abc\"", "array of 3".
std::string described(const Json& json);

/// Reads values from JSON. Nodes are `const Json*` of a document that must outlive the source, or of referenced and
/// held values, which the source keeps alive.
class JsonSource final : public ValueSource {
public:
    /// Imports tensors and follows references when they are first read. `port` and `references` must outlive the
    /// source; without `references`, a reference is an error. `placement` is the placement of the function that gets
    /// the arguments.
    explicit JsonSource(TensorPort& port, References* references = nullptr, std::optional<Placement> placement = {})
        : port_(&port), references_(references), placement_(placement) {}

    static Node node(const Json& json) { return &json; }
    /// The node of a finished value, which is read with its tensors and objects.
    Node hold(std::shared_ptr<const Value> value);

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
    const TensorRef& tensor(Node node) const override;
    TensorRef plain_tensor(Node node) const override;
    Placement placement() const override { return placement_.value_or(Placement()); }
    ObjectPointer handle(Node node, Access access) const override;
    std::string describe(Node node) const override;

    /// The value to read at that node: the referenced value if it is a reference, else the node itself.
    const Json& at(Node node) const;
    /// The tensor imported for that node, not converted; null if it was never read.
    TensorPointer imported(Node node) const;
    /// Whether the node is an object inside a referenced or held value. Such an object has no id.
    bool is_inner_object(Node node) const { return objects_.contains(node); }

    using Use = std::pair<ObjectPointer, Access>;
    /// The objects that were read so far; an object is listed once per read.
    const std::vector<Use>& uses() const { return uses_; }
    /// Why a reference could not be resolved. It explains an InvalidValue that this source threw.
    const std::optional<json_rpc::Error>& rejection() const { return rejection_; }

private:
    template <class Resolve>
    auto resolved(Resolve resolve) const;
    const Json& follow(Node node, const Json& name) const;
    const Json& keep(Node node, std::shared_ptr<const Value> value) const;
    TensorPointer import_lists(const Json& lists) const;

    TensorPort* port_;
    References* references_;
    std::optional<Placement> placement_;
    mutable std::unordered_map<Node, TensorPointer> tensors_;
    mutable std::unordered_map<Node, std::shared_ptr<const Value>> followed_;
    mutable std::unordered_map<Node, ObjectPointer> objects_;  ///< objects of values in followed_
    mutable std::vector<Use> uses_;
    mutable std::optional<json_rpc::Error> rejection_;
};

}  // namespace shared_tensor::codec
