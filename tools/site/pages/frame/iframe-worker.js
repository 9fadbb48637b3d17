// The search runs in a Worker, which browsers do not start from file://. There it runs in a hidden frame instead.
if (location.protocol === "file:")
    window.Worker = class extends EventTarget {
        constructor(url) {
            super();
            const frame = document.createElement("iframe"), script = document.createElement("script");
            frame.hidden = true;
            document.body.append(frame);
            const scope = frame.contentWindow;
            scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
            const loaded = new Promise((resolve) => (script.onload = resolve));
            this.postMessage = (data) => loaded.then(() => scope.dispatchEvent(new MessageEvent("message", { data })));
            script.src = url;
            scope.document.body.append(script);
        }
    };
