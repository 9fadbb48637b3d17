// What a page of docs/see/ is asked, and what the C++ code says: tests/site_test.py asks the page the same, in a browser.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

/// Cases of one page. Its destructor writes SEE_FOLDER/NAME.json: [{"query": ..., "answer": ...}, ...].
class Vectors {
public:
    explicit Vectors(std::string page_name);
    Vectors(const Vectors&) = delete;
    ~Vectors();

    /// `answer` is what window.see.NAME.answer(query) has to return; numbers with a fraction may be off by 1e-9 of it.
    void add(nlohmann::json query, nlohmann::json answer);

private:
    std::string page_name_;
    nlohmann::json cases_ = nlohmann::json::array();
};
