#include "server/url_media.hpp"

#include <utility>
#include <variant>
#include <vector>

#include <shared_tensor/value.hpp>

#include "server/tensor_endpoint.hpp"

namespace shared_tensor::server {

namespace {

/// Its readers get copies, so no process has its memory mapped.
class KeptTensor final : public service::LeasedBytes {
public:
    explicit KeptTensor(codec::TensorPointer tensor) : tensor_(std::move(tensor)) {}
    void retire(bool) noexcept override {}
    codec::TensorPointer tensor() const override { return tensor_; }

private:
    const codec::TensorPointer tensor_;
};

std::vector<const tensor::Medium*> with(const tensor::Media& others, const tensor::Medium& one) {
    std::vector<const tensor::Medium*> all{&one};
    for (const tensor::Way way : tensor::kWays) {
        if (const tensor::Medium* other = others.find(way); other != nullptr) all.push_back(other);
    }
    return all;
}

}  // namespace

class UrlMedia::Url final : public tensor::Medium {
public:
    Url(service::LeaseTable& leases, service::Lessee lessee) : leases_(&leases), lessee_(std::move(lessee)) {}

    tensor::Way way() const override { return tensor::Way::url; }
    tensor::Viability viable() const override { return {}; }
    tensor::Viability carries(tensor::DType) const override { return {}; }
    /// Device memory is scarce: it is not kept for a client that may never fetch it.
    tensor::Viability fits(const codec::TensorHandle& tensor) const override {
        return {tensor.on_device() ? "the tensor lies in device memory, which is not kept for later" : ""};
    }
    tensor::Imported import(const tensor::Descriptor&, const tensor::Incoming&) const override {
        throw InvalidValue("url", "a tensor that is sent, or {\"$ref\": lease} for one that is here", "a url");
    }
    tensor::Exported export_to(const codec::TensorPointer& tensor, tensor::OutgoingBody&) const override {
        auto granted = leases_->grant(lessee_, tensor::name_of(tensor::Way::url), tensor->bytes(),
                                      std::make_unique<KeptTensor>(tensor));
        if (auto* refused = std::get_if<service::LeaseTable::Refused>(&granted))
            throw tensor::CannotLend(std::move(refused->reason));
        tensor::Exported exported;
        exported.lease = std::move(std::get<std::string>(granted));
        exported.content.append(TensorEndpoint::kPrefix).append(exported.lease);
        exported.is_word = true;
        return exported;
    }

private:
    service::LeaseTable* const leases_;
    const service::Lessee lessee_;
};

UrlMedia::UrlMedia(const tensor::Media& others, service::LeaseTable& leases, service::Lessee lessee)
    : url_(std::make_unique<Url>(leases, std::move(lessee))), media_(with(others, *url_)) {}

std::string url_lessee(std::string_view principal, std::string_view session) {
    return std::string("@").append(session.empty() ? principal : session);
}

}  // namespace shared_tensor::server
