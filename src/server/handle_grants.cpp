#include "server/handle_grants.hpp"

namespace shared_tensor::server {

codec::Json HandleGrants::describe(const ObjectPointer& object) {
    auto granted = objects_->grant(owner_, object);
    if (auto* refused = std::get_if<service::ObjectTable::Refused>(&granted))
        throw TooManyHandles(std::move(refused->reason));
    granted_.push_back(std::move(std::get<std::string>(granted)));
    // A session that ended while the call ran has had its end already: its handles are looked for once more.
    if (!owner_.session.empty() && !sessions_->is_open(owner_.session)) objects_->session_ended(owner_.session);
    return {{"id", granted_.back()}, {"type", object->type}};
}

void HandleGrants::take_back() {
    objects_->release(granted_, std::nullopt);
    granted_.clear();
}

}  // namespace shared_tensor::server
