"""The app: `python app.py`, or `make app`. Options come from the environment, see README."""

from specviz.ui.build import build, serve

demo = build()

if __name__ == "__main__":
    address = serve(demo)[1]
    print(f"specviz is at {address}", flush=True)
    demo.block_thread()
