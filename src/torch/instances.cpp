#include "torch/instances.hpp"

#include <stdexcept>

namespace shared_tensor::models {

namespace {

/// All tensor attributes of the module and its submodules. Does not look into containers.
void collect_tensors(const torch::jit::Module& module, std::vector<at::Tensor>& tensors) {
    for (const torch::jit::Module& part : module.modules()) {
        for (const c10::IValue& slot : part._ivalue()->slots()) {
            if (slot.isTensor() && slot.toTensor().defined()) tensors.push_back(slot.toTensor());
        }
    }
}

std::vector<at::Tensor> common_tensors(const torch::jit::Module& module, State state) {
    std::vector<at::Tensor> tensors;
    if (state == State::shared) collect_tensors(module, tensors);
    if (state == State::copied) {
        for (const at::Tensor& parameter : module.parameters())
            tensors.push_back(parameter);
    }
    return tensors;
}

}  // namespace

Instances::Instances(torch::jit::Module loaded, LoadOptions options, SessionIsOpen is_open)
    : loaded_(std::move(loaded)),
      options_(std::move(options)),
      is_open_(std::move(is_open)),
      common_(common_tensors(loaded_, options_.state)) {}

std::shared_ptr<Instance> Instances::make() const {
    if (stateless()) return std::make_shared<Instance>(loaded_, kin_);
    // deepcopy() uses tensors of the memo instead of copying them.
    c10::IValue::HashIdentityIValueMap memo;
    for (const at::Tensor& tensor : common_)
        memo.emplace(tensor, tensor);
    return std::make_shared<Instance>(torch::jit::Module(c10::IValue(loaded_._ivalue()).deepcopy(memo).toObject()),
                                      kin_);
}

std::shared_ptr<Instance> Instances::find_or_make(std::string_view session) {
    if (session.empty()) return make();
    const auto find = [&](const Map& sessions) {
        const auto found = sessions.find(session);
        return found == sessions.end() ? nullptr : found->second;
    };
    if (auto known = sessions_.with(find)) return known;
    const auto made = make();  // without the lock: it copies tensors
    auto kept = sessions_.with([&](Map& sessions) {
        if (auto known = find(sessions)) return known;
        if (sessions.size() >= options_.max_instances) {
            throw std::runtime_error(std::to_string(options_.max_instances) +
                                     " sessions hold an instance of this model already: " +
                                     "close one that is not used any more (session.close), or call without a session");
        }
        return sessions.emplace(session, made).first->second;
    });
    // A call can outlive its session, so the session may have ended before this: erase() found no instance then.
    if (is_open_ && !is_open_(std::string(session))) erase(session);
    return kept;
}

void Instances::erase(std::string_view session) {
    const auto last = sessions_.with([&](Map& sessions) {  // destroyed after the lock is released
        const auto found = sessions.find(session);
        return found == sessions.end() ? Map::node_type() : sessions.extract(found);
    });
}

std::size_t Instances::size() const {
    return sessions_.with([](const Map& sessions) { return sessions.size(); });
}

}  // namespace shared_tensor::models
