// Browsers start no workers for pages opened as files, and the search runs in one. There a hidden frame does as well:
// it has a global scope of its own, and messages go to and fro as events.
(() => {
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.receive(data);
      inside.importScripts = (...urls) => urls.reduce((done, next) => done.then(() => load(inside, next)), Promise.resolve());
      load(inside, url).then(() => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }

    postMessage(data) {
      if (!this.ready) this.waiting.push(data);
      else setTimeout(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    receive(data) {
      setTimeout(() => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      });
    }

    terminate() {
      this.frame.remove();
    }
  }

  function load(inside, url) {
    return new Promise((resolve, reject) => {
      const script = inside.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      script.onload = resolve;
      script.onerror = reject;
      inside.document.body.append(script);
    });
  }

  window.IFrameWorker = window.Worker = FrameWorker;
})();
