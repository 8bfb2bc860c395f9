#include "protocol/codec/references.hpp"

namespace shared_tensor::codec {

const Json* item_in(const Json& name) {
    if (!name.is_object() || name.size() != 1 || name.begin().key() != "item") return nullptr;
    return &name.begin().value();
}

void for_each_reference(const Json& params, const std::function<void(const Json&)>& found) {
    if (!params.is_structured()) return;
    const Json* members = &params;
    if (params.is_object() && params.size() == 1) {
        const auto only = params.begin();
        if (only.key() == "$ref") return found(only.value());
        if (only.key() == "$tensor" || only.key() == "$object") return;
        if (only.key() == "$literal") members = &only.value();
    }
    if (!members->is_structured()) return;
    for (const Json& member : *members)
        for_each_reference(member, found);
}

}  // namespace shared_tensor::codec
