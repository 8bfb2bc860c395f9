#include "server/rpc/message_references.hpp"

#include <utility>

#include <shared_tensor/value.hpp>

namespace shared_tensor::server {

using codec::Json;
using codec::Unresolved;
using json_rpc::unknown_or_expired;

namespace {

const std::string* text_member(const Json& object, const char* name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return object.is_object() && found != object.end() ? found->get_ptr<const std::string*>() : nullptr;
}

}  // namespace

std::shared_ptr<const codec::Value> MessageReferences::value(const Json& name) {
    if (const Json* id = codec::item_in(name)) {
        const auto found = items_.find(*id);
        if (found != items_.end()) return {found->second, found->second->value()};
        throw InvalidValue({}, "the id of an earlier item of the same batch behind $ref.item", id->dump());
    }
    const auto* text = name.get_ptr<const std::string*>();
    if (text == nullptr || text->empty())
        throw InvalidValue({}, R"("l-...", a name or {"item": id} behind $ref)", "something else");
    if (text->starts_with("l-")) return lease(*text);
    auto named = values_->named ? values_->named(*text, *principal_) : nullptr;
    if (named == nullptr) throw Unresolved(unknown_or_expired("tensor", values_->epoch));
    return named;
}

std::shared_ptr<const codec::Value> MessageReferences::lease(const std::string& id) const {
    codec::TensorPointer tensor = values_->leases.tensor(id, principal_->name);
    if (tensor == nullptr) throw Unresolved(unknown_or_expired("lease", values_->epoch));
    return std::make_shared<const codec::Value>(codec::Value{{{"$tensor", 0}}, {std::move(tensor)}});
}

ObjectPointer MessageReferences::object(const Json& handle) {
    const std::string* id = text_member(handle, "id");
    if (id == nullptr) throw InvalidValue({}, R"({"id": "o-..."} behind $object)", "something else");
    ObjectPointer object = values_->objects.find(*id, principal_->name);
    if (object == nullptr) throw Unresolved(unknown_or_expired("object", values_->epoch));
    if (const std::string* type = text_member(handle, "type"); type != nullptr && *type != object->type)
        throw InvalidValue({}, "a handle that names its object's type, " + object->type, *type);
    return object;
}

}  // namespace shared_tensor::server
