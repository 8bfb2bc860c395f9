#pragma once

#include <string>
#include <string_view>

namespace shared_tensor {

/// The versions of the protocol (docs/protocol.md, "Versions") that this build speaks. A client sends the newest one.
inline constexpr std::string_view kOldestProtocol = "0.2", kNewestProtocol = "0.2";

/// The request header and the member of session.open that name the client's version.
inline constexpr const char* kProtocolHeader = "Shared-Tensor-Protocol";

/// Empty if this build speaks `version`, else why not and what to do. `who` names the other side: "the client".
inline std::string protocol_mismatch(std::string_view version, std::string_view own, std::string_view who) {
    if (version == kNewestProtocol || version == kOldestProtocol) return {};
    return std::string(own) + " speaks protocol " + std::string(kNewestProtocol) + " of shared_tensor, but " +
           std::string(who) + " speaks " + std::string(version.substr(0, 16)) +
           ": install the same version of shared_tensor on both sides";
}

}  // namespace shared_tensor
