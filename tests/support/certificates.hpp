#pragma once

// Makes certificates for tests with OpenSSL at run time, so that the repository has no secret and no certificate that
// expires.

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include <sys/stat.h>

namespace shared_tensor::test {

struct FreeOpenSsl {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
};

/// A P-256 key with its certificate.
class Certificate {
public:
    struct Options {
        std::string name = "127.0.0.1";                           ///< the subject's common name
        std::string alternatives = "IP:127.0.0.1,DNS:localhost";  ///< subjectAltName; empty: none
        bool is_authority = false;
        long valid_from = -3600, valid_until = 3600;  ///< seconds from now
    };
    /// Signs the certificate with the key of `issuer`, or with its own key if `issuer` is null.
    explicit Certificate(const Options& requested, const Certificate* issuer = nullptr)
        : key_(EVP_EC_gen("P-256")), certificate_(X509_new()) {
        X509* made = certificate_.get();
        X509_set_version(made, 2);
        static long serial = 1;
        ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial);
        X509_gmtime_adj(X509_getm_notBefore(made), requested.valid_from);
        X509_gmtime_adj(X509_getm_notAfter(made), requested.valid_until);
        X509_set_pubkey(made, key_.get());
        const auto* name = reinterpret_cast<const unsigned char*>(requested.name.c_str());
        if (!requested.name.empty())
            X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_UTF8, name, -1, -1, 0);
        X509_set_issuer_name(made, X509_get_subject_name(issuer != nullptr ? issuer->certificate_.get() : made));
        extend(NID_basic_constraints, requested.is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
        if (!requested.alternatives.empty()) extend(NID_subject_alt_name, requested.alternatives);
        if (X509_sign(made, issuer != nullptr ? issuer->key_.get() : key_.get(), EVP_sha256()) == 0)
            throw std::runtime_error("a certificate could not be signed");
    }

    void write_certificate(const std::string& path) const {
        const auto file = open(path);
        PEM_write_X509(file.get(), certificate_.get());
    }
    void write_key(const std::string& path, mode_t mode = 0600, const char* pass_phrase = nullptr) const {
        const auto file = open(path);
        const EVP_CIPHER* cipher = pass_phrase != nullptr ? EVP_aes_128_cbc() : nullptr;
        PEM_write_PrivateKey(file.get(), key_.get(), cipher, nullptr, 0, nullptr, const_cast<char*>(pass_phrase));
        ::chmod(path.c_str(), mode);
    }

private:
    struct Close {
        void operator()(std::FILE* file) const { (void)std::fclose(file); }
    };
    static std::unique_ptr<std::FILE, Close> open(const std::string& path) {
        std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "we"));
        if (!file) throw std::runtime_error("cannot write " + path);
        return file;
    }
    void extend(int kind, const std::string& text) {
        const std::unique_ptr<X509_EXTENSION, FreeOpenSsl> extension(
            X509V3_EXT_conf_nid(nullptr, nullptr, kind, text.c_str()));
        if (!extension) throw std::runtime_error("no such extension: " + text);
        X509_add_ext(certificate_.get(), extension.get(), -1);
    }

    std::unique_ptr<EVP_PKEY, FreeOpenSsl> key_;
    std::unique_ptr<X509, FreeOpenSsl> certificate_;
};

}  // namespace shared_tensor::test
