"""Writes a file of prompts of many kinds for `distil`: chat, lists, code, maths, rewriting, extraction, roleplay, formats.

Usage: python scripts/mixed_prompts.py OUT.jsonl [COUNT] [SEED]

Every prompt is a template below filled at random, so none comes from an evaluation set.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

LISTS = {
    "topic": """the history of tea|remote work|electric bicycles|coral reefs|learning the piano|public libraries|sourdough bread|volcanoes|time management|
solar power|the Roman Empire|chess openings|urban gardening|jazz music|the immune system|black holes|budgeting for students|renaissance painting|plate tectonics|
machine learning|the water cycle|beekeeping|marathon training|photosynthesis|inflation|meditation|the French Revolution|vaccines|supply and demand|climate change|
ancient Egypt|cyber security|the human heart|recycling|film noir|desert animals|quantum computing|sleep|wind turbines|the Silk Road|fermentation|open source software|
dinosaurs|mental health at work|the printing press|gravity|online privacy|coffee farming|migration of birds|democracy|ocean currents|tourism in small towns|
space telescopes|nutrition for children|earthquakes|haiku|the stock market|genetics|volunteering|robotics|antibiotics|glaciers|storytelling|railways""",
    "place": "Lisbon|Kyoto|Iceland|Peru|New Orleans|Morocco|Edinburgh|Vietnam|the Norwegian fjords|Cape Town|Prague|Costa Rica|Istanbul|the Scottish Highlands|Buenos Aires|Seoul",
    "role": """a ship's captain in a storm|a medieval blacksmith|a patient maths teacher|a detective in 1920s Chicago|a robot who just became self-aware|a strict but kind coach|
a travel guide|a grumpy chef|an astronaut on Mars|a doctor who explains things simply|a court jester|a librarian who knows every book|a retired wizard|a news anchor|
a lighthouse keeper|an economist|a dragon who collects teapots|a software architect|a gardener|a philosopher in ancient Athens""",
    "person": "Maria|Tom|Aisha|Kenji|Olga|Pedro|Nina|Samuel|Lena|Ravi|Chloe|Marcus|Yara|Hugo|Ines|Daniel",
    "other": "her manager|a neighbour|a new customer|an old friend|the landlord|the school principal|a colleague|the whole team|a supplier|the city council",
    "item": "apples|notebooks|tickets|pencils|cookies|bottles|books|flowers|chairs|marbles|stamps|postcards|eggs|tiles",
    "thing": "a waterproof backpack|a smart lamp|a language app|an organic coffee|noise-cancelling headphones|a folding bicycle|a meal kit|a fitness watch|a board game|a reusable bottle",
    "lang": "Python|Python|Python|JavaScript|C++|Java|Rust|SQL|Bash",
    "task": """reverses a linked list|checks whether a string is a palindrome|merges two sorted lists|counts the words in a text file|finds the largest number in a list|
computes the factorial of a number|removes duplicates from a list|sorts a list of dictionaries by a key|converts Celsius to Fahrenheit|finds all prime numbers up to n|
validates an email address|parses a CSV line|computes the greatest common divisor|implements a stack with push and pop|performs binary search|flattens a nested list|
returns the second largest element|counts vowels in a string|groups words by their first letter|finds the longest common prefix|rotates a matrix by 90 degrees|
implements bubble sort|generates a random password|computes the moving average of a list|finds two numbers that add up to a target|transposes a matrix""",
    "concept": """recursion|entropy|opportunity cost|natural selection|a hash table|supply chains|the greenhouse effect|Newton's third law|compound interest|osmosis|
a neural network|the Doppler effect|the placebo effect|herd immunity|a binary tree|relativity|the Turing test|momentum|DNA replication|object-oriented programming|
the scientific method|standard deviation|cognitive bias|the carbon cycle|a blockchain|photosynthesis|game theory|superconductivity|the double-slit experiment""",
    "audience": "a ten-year-old|a beginner|a busy manager|a university student|my grandmother|a high school class|someone who dislikes maths",
    "tone": "formal|friendly|humorous|polite|persuasive|dramatic|simple|enthusiastic",
    "format": "a JSON object|a Markdown table|a bulleted list|a numbered list|CSV with a header line|YAML|one short paragraph|a question-and-answer format",
    "sentence": """The meeting that was scheduled for Monday has been moved to Thursday because several people could not attend.|
Due to the fact that it was raining, the event, which had been planned for months, was cancelled by the organisers.|
The company announced on Tuesday that revenue grew by 12 percent, reaching 4.5 million dollars, while costs fell slightly.|
She go to the store yesterday and buyed three apple and a milk.|The committee have decided to postpone there decision until next weak.|
The old house at the end of the street, which nobody had lived in for years, was finally sold to a young couple from Boston.|
Our new phone has a bright 6.1 inch screen, a battery that lasts two days, and costs 399 dollars.|
I was wondering if you could maybe possibly send me the report at some point when you have time.|
In 2019 the museum welcomed 310,000 visitors, of whom 40 percent came from abroad, mostly from Germany and Japan.|
The film is long, but the actors are wonderful and the ending surprised everyone in the audience.|
Him and me was walking in the park when the dog runned away from us.|
The recipe needs two cups of flour, one cup of sugar, three eggs and half a cup of butter.""",
    "review": """The hotel was clean but the staff were rude and breakfast was cold.|I have used this blender every day for a year and it still works perfectly.|
It arrived late, the box was damaged, and one part was missing.|Not bad for the price, though the sound could be better.|Best pizza in town, we will come back every Friday!|
The app crashes whenever I open the settings page.|A quiet, moving novel that stays with you.|The seats were uncomfortable and the film was an hour too long.""",
    "verse": "a haiku|a short poem|a limerick|a four-line rhyme|a sonnet|a song verse",
    "n": "3|4|5|6|7|8|10",
    "a": "3|4|5|6|7|8|9|12|15|18|20|24|25|30|36|40|45|48|60|72|80|90|100|120|150",
    "b": "2|3|4|5|6|7|8|9|10|11|12|14|15|16|20",
    "c": "2|3|4|5|6|8|9|10|12",
}

TEMPLATES = {
    "writing": """Write a blog post about {topic} for {audience}.|Compose a {tone} email from {person} to {other} about {topic}.|Write {verse} about {topic}.|
Write a short story that begins with the line: "{person} had never cared about {topic} until today."|Draft a {tone} product description for {thing}.|
Write the outline of an article on {topic} with {n} sections.|Describe a walk through {place} so that the reader can see, hear and smell it.|
Write a persuasive paragraph that convinces {audience} to try {topic}.|Write a {tone} letter of recommendation for {person}, who knows a lot about {topic}.|
Write a dialogue between {person} and {role} about {topic}.|Write an introduction for a podcast episode on {topic}.|Write a one-paragraph review of a book about {topic}.|
Plan a {n}-day trip to {place} with things to do each day.|Write a speech of about 150 words for the opening of an exhibition on {topic}.|
Write a scene in which two strangers meet on a train to {place}.|Write a press release announcing {thing}.""",
    "roleplay": """Imagine you are {role}. Introduce yourself and tell me about your day.|Act as {role} and give me advice about {topic}.|
Pretend to be {role}. Answer my question: what do you think of {topic}?|You are {role}. Explain {concept} to me in your own way.|
I want you to act as {role}. My first question is: how should I begin with {topic}?|Take on the voice of {role} and describe {place}.""",
    "reasoning": """{person} is taller than {person}, and {person} is taller than Ana. Who is the shortest? Explain step by step.|
If all {item} are red and some red things are heavy, are some {item} heavy? Explain.|A farmer has {a} hens and {b} goats. How many legs are there in all?|
Which is heavier, {a} grams of feathers or {b} grams of iron? Explain your answer.|If yesterday was two days after Monday, what day is tomorrow? Reason step by step.|
Compare the advantages and disadvantages of {topic} and {topic}.|{person} says {person} is lying. {person} says everyone tells the truth. Who could be right?|
What would happen if everyone suddenly stopped caring about {topic}?|Find the odd one out and say why: {topic}, {topic}, {concept}, {topic}.""",
    "maths": """{person} has {a} {item} and gives {b} to each of {c} friends. How many are left?|A shop sells {item} at {b} dollars each. How much do {a} {item} cost with a discount of {c} percent?|
A train travels {a} km in {b} hours. How far does it travel in {c} hours?|Solve for x: {b}x + {c} = {a}.|What is {a} times {b} plus {c}? Show your work.|
The area of a rectangle is {a} square metres and one side is {b} metres. What is its perimeter?|{person} reads {b} pages a day. How long does a book of {a} pages take?|
If f(x) = {b}x^2 - {c}x + 1, what is f({c})?|What is the probability of rolling a sum of {b} with two dice?|A recipe for {c} people needs {b} eggs. How many eggs are needed for {a} people?|
Find the average of {a}, {b}, {c} and {a}.|Simplify the expression ({b}x + {c})(x - {b}).|{person} earns {a} dollars a week and spends {b} dollars a day. How much is saved after {c} weeks?""",
    "coding": """Write a {lang} function that {task}.|Write a {lang} program that {task}, with comments.|Explain the following idea with a short {lang} example: {concept}.|
Write a function in {lang} that {task} and give its time complexity.|Show me how to write a unit test in {lang} for code that {task}.|
Write an HTML page with a button that shows a message about {topic}.|Write a class in {lang} that represents a collection of {item}.|
How do I read a file line by line in {lang}? Give an example.|What is the difference between a list and a set in {lang}?|Write a regular expression that matches dates such as 2024-01-31.|
Write a SQL query that returns the {n} customers with the most orders.|Fix this Python code: def add(a, b) return a - b""",
    "extraction": """Extract all names, dates and numbers from this text as {format}: {sentence}|List the {n} most important facts about {topic} as {format}.|
Classify the following review as positive, neutral or negative and explain: {review}|Rate each review from 1 to 5 and answer as {format}: 1. {review} 2. {review} 3. {review}|
Give me information about {n} famous books as {format} with the fields title, author and year.|Return {format} describing {person}, who lives in {place} and likes {topic}.|
Which topic does this sentence deal with? {sentence}|Identify the subject and the verb of this sentence: {sentence}|
Turn this into {format}: {person} bought {a} {item} for {b} dollars, and {person} bought {b} {item} for {c} dollars.""",
    "rewriting": """Rewrite this sentence in a {tone} tone: {sentence}|Summarise in one sentence: {sentence} {sentence}|Correct the grammar: {sentence}|Make this shorter: {sentence}|
Translate into French: {sentence}|Rewrite the following text for {audience}: {sentence} {review}|Turn this sentence into a question: {sentence}|
Repeat this text, but replace every number with a word: {sentence}|Paraphrase this review without changing its meaning: {review}|Continue the text: {sentence}""",
    "stem": """Explain {concept} to {audience}.|What is {concept}, and why does it matter? Give an example.|How does {concept} work? Answer in {n} steps.|
What are the main causes and effects of {topic}?|Describe an experiment that shows {concept}.|What is the relation between {concept} and {concept}?|
Name {n} common misunderstandings about {concept} and correct them.|How would an engineer use {concept} in practice?""",
    "humanities": """How did {topic} change society? Give {n} reasons.|Discuss the ethics of {topic} from two points of view.|Give a short history of {topic}.|
What can {place} teach us about {topic}?|Explain how {concept} influences everyday decisions.|Write an essay plan on the question: does {topic} make people happier?|
Describe {n} important people in the history of {topic}.|Create a lesson plan about {topic} for {audience}.""",
    "chat": """What are {n} tips for {topic}?|Can you recommend something to do in {place}?|How do I get started with {topic}?|I feel tired after work. What could help, apart from {topic}?|
List {n} gift ideas for {person}, who loves {topic}.|What should I cook tonight with eggs, rice and {item}?|Give me {n} interesting facts about {topic}.|
What questions should I ask in an interview about {topic}?|Help me plan a small party about {topic} with a budget of {a} dollars.|What are the pros and cons of {thing}?|
Suggest {n} names for a shop that sells {item}.|Is {topic} worth my time? Be honest.|Make a weekly schedule for someone who wants to learn about {topic}.|Who are you and what can you do?""",
}


def fill(template: str, chance: random.Random) -> str:
    """Returns the template with every {name} replaced by a random entry of that list; two of one kind differ where they can."""
    used: set[str] = set()

    def pick(found: re.Match[str]) -> str:
        choices = [c.strip() for c in LISTS[found[1]].split("|")]
        chosen = chance.choice([c for c in choices if c not in used] or choices)
        used.add(chosen)
        return chosen

    return re.sub(r"{(\w+)}", pick, template)


def prompts(count: int, seed: int) -> list[dict[str, str]]:
    """Returns `count` different prompts, the kinds in turn."""
    chance, kinds, seen = random.Random(seed), list(TEMPLATES), set()
    found: list[dict[str, str]] = []
    while len(found) < count:
        kind = kinds[len(found) % len(kinds)]
        text = fill(chance.choice([t.strip() for t in TEMPLATES[kind].split("|")]), chance)
        if text not in seen:
            seen.add(text)
            found.append({"id": f"mixed/{len(found)}", "task": kind, "prompt": text})
    return found


def main(out: str, count: str = "2000", seed: str = "0") -> None:
    """Writes the file."""
    lines = [json.dumps(record) + "\n" for record in prompts(int(count), int(seed))]
    Path(out).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
