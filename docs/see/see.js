// What the pages of docs/see/ make their elements with; tools/site/hooks.py loads it before the page's own script.
"use strict";
window.see = {};
window.see.made = (() => {
    function element(tag, properties = {}, ...children) {
        const made = Object.assign(document.createElement(tag), properties);
        made.append(...children);
        return made;
    }
    function drawing(tag, attributes = {}, ...children) {
        const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
        for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
        made.append(...children);
        return made;
    }
    const labelled = (label, control) => element("label", {}, element("span", {textContent: label}), control);
    /// What is wider than the page scrolls in it, by the keyboard too.
    const region = (label, ...children) =>
        element("div", {className: "see-scroll", tabIndex: 0, role: "region", ariaLabel: label}, ...children);
    const cells = (tag, of, scope) => of.map((content) => element(tag, {textContent: content, ...(scope ? {scope} : {})}));
    /// What the address asks for, behind its '#': {name: value}.
    const asked = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    return {element, drawing, labelled, region, cells, asked};
})();
